// What the browser keeps for this page, by name. A browser that keeps nothing is no error: it is then as if nothing had
// been kept.

const kPrefix = "nodewright.";

// null where nothing readable is kept.
export function kept(name, store = localStorage) {
  try {
    return JSON.parse(store.getItem(kPrefix + name));
  } catch {
    return null;  // another page's text, or a browser that keeps nothing
  }
}

// False where the browser has no room, or keeps nothing.
export function keep(name, value, store = localStorage) {
  try {
    store.setItem(kPrefix + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function drop(name) {
  try {
    localStorage.removeItem(kPrefix + name);
  } catch {
    // nothing is kept
  }
}

// Names of all that is kept.
export function kept_names() {
  try {
    return Object.keys(localStorage).filter(key => key.startsWith(kPrefix)).map(key => key.slice(kPrefix.length));
  } catch {
    return [];
  }
}

// Calls `act` with a name when another window has changed what is kept under it.
export function when_changed_elsewhere(act) {
  addEventListener("storage", event => {
    if (event.key === null) act(null);  // all of it
    else if (event.key.startsWith(kPrefix)) act(event.key.slice(kPrefix.length));
  });
}
