// The page: figures one after the other, so that it can be read meanwhile; light and dark; where the reader is.

function takeOver() {
  const figures = [...document.querySelectorAll("[data-figure]")];
  const next = () => {
    const figure = figures.shift();
    if (!figure) {
      document.documentElement.dataset.ready = "yes";
      return;
    }
    new Chart(figure);
    setTimeout(next, 0);
  };
  next();
}

function themeSwitch() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const control = document.querySelector("[data-theme-switch]");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => {
    control.textContent = isDark() ? "light" : "dark";
    control.setAttribute("aria-label", `change to ${control.textContent} colours`);
  };
  control.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
  });
  system.addEventListener("change", tell);
  control.hidden = false;
  tell();
}

/** Marks the part that is being read in the contents. */
function follow() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) {
    const part = document.getElementById(id);
    if (part) seen.observe(part);
  }
}

document.querySelectorAll("[data-sortable]").forEach(sortable);
document.querySelectorAll("[data-map]").forEach(answering);
// On a narrow screen the contents would push everything else down.
if (matchMedia("(max-width: 60rem)").matches) document.querySelector(".contents details").open = false;
document.querySelector(".hint")?.removeAttribute("hidden");
themeSwitch();
follow();
takeOver();
