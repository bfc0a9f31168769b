// Starts the page: views, what the head says, and what it says where the server does not answer.
import { get_json } from "./api.js";
import { show_card } from "./card.js";
import { set_model, start_chat } from "./chat.js";
import { poll, show_again } from "./live.js";
import { allow_chat, api_key, ask_for_key, start_settings } from "./settings.js";

const by_id = id => document.getElementById(id);
const tabs = [by_id("chat-tab"), by_id("live-tab")];
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
  if (tab.id === "live-tab") show_again();
}

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
}

function notice(text) {
  if (by_id("notice").textContent !== text) by_id("notice").textContent = text;
  by_id("notice").hidden = text === "";
}

async function told(live) {
  notice(kWaiting[live.state] ?? "");
  if (!live.model) return;
  allow_chat(live.model.chat);
  try {
    models ??= (await get_json("/v1/models", api_key())).body.data;
    set_model(models[0].id);
  } catch (error) {
    notice(error.message);
  }
  show_card(models, live);
}

function failed(error) {
  notice(error.name === "TimeoutError" ? "The server does not answer." : error.message);
  if (error.status !== 401 || has_asked) return;
  has_asked = true;
  ask_for_key();
}

const ask = () => poll({ told, failed });

start_settings({ key_changed: ask });
start_chat();
start_tabs();
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
addEventListener("resize", show_again);
ask();
