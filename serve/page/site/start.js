// Starts the page: views, what the head says, and what it says where the server does not answer.
import { ApiFailure, get_json } from "./api.js";
import { show_card } from "./card.js";
import { model_name, open_conversation, send, set_model, start_chat, stop } from "./chat.js";
import { start_composer } from "./composer.js";
import { show_list, start_list } from "./list.js";
import { poll, show_again, show_silence } from "./live.js";
import { start_panels } from "./panels.js";
import { allow_chat, api_key, ask_for_key, show_defaults, start_settings } from "./settings.js";
import { show_welcome } from "./welcome.js";

const by_id = id => document.getElementById(id);
const tabs = [by_id("chat-tab"), by_id("live-tab")];
const kLive = "#live";
let models = null;         // of /v1/models
let has_asked = false;     // for the key
const kWaiting = { loading: "The model is being loaded.", draining: "The server is shutting down.",
                   asleep: "The engine sleeps.", failed: "The engine has failed.",
                   full: "The server has as many requests as it may have." };

function choose_tab(tab) {
  for (const one of tabs) {
    one.setAttribute("aria-selected", String(one === tab));
    one.tabIndex = one === tab ? 0 : -1;
    by_id(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  const is_live = tab.id === "live-tab";
  if ((location.hash === kLive) !== is_live)
    history.replaceState(null, "", is_live ? kLive : location.pathname + location.search);
  if (is_live) show_again();
}

// The address says which view it is, so that a reload and a link lead to it.
const follow_address = () => choose_tab(by_id(location.hash === kLive ? "live-tab" : "chat-tab"));

function start_tabs() {
  for (const tab of tabs) {
    tab.addEventListener("click", () => choose_tab(tab));
    tab.addEventListener("keydown", event => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = tabs[1 - tabs.indexOf(tab)];
      choose_tab(other);
      other.focus();
    });
  }
  addEventListener("hashchange", follow_address);
  follow_address();
}

// In the head, where it is seen from each view: "" while the server does what is asked of it.
function show_status(text, is_dead = false) {
  if (by_id("status").textContent !== text) by_id("status").textContent = text;
  by_id("status").hidden = text === "";
  document.body.classList.toggle("dead", is_dead);
}

function notice(text) {
  if (by_id("notice").textContent !== text) by_id("notice").textContent = text;
  by_id("notice").hidden = text === "";
}

async function told(live) {
  notice(kWaiting[live.state] ?? "");
  show_status(kWaiting[live.state] ? live.state : "");
  if (!live.model) return;
  allow_chat(live.model.chat);
  show_defaults(live.model);
  try {
    models ??= (await get_json("/v1/models", api_key())).body.data;
    set_model(models[0].id);
  } catch (error) {
    notice(error.message);
  }
  show_card(models, live);
}

function failed(error) {
  models = null;  // another server may answer next
  const is_dead = error instanceof ApiFailure && error.status === 0;
  show_silence(is_dead ? "not answering" : "unknown");
  show_status(is_dead ? "not answering" : error.status === 401 ? "API key needed" : "not understood", is_dead);
  notice(is_dead ? "The server does not answer. This page asks again every second." : error.message);
  if (error.status !== 401 || has_asked) return;
  has_asked = true;
  ask_for_key();
}

const ask = () => poll({ told, failed });

start_settings({ key_changed: ask,
                 mode_told: () => show_welcome(open_conversation().turns.length === 0, model_name()) });
start_panels();
start_composer({ send, stop });
start_list();
start_chat({ told: show_list });
start_tabs();
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
addEventListener("resize", show_again);
ask();
