// Runs before the first paint, so that the wrong theme never flashes.
(() => {
  try {
    const chosen = localStorage.getItem("cascader-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be blocked: then the system's theme applies.
  }
})();
