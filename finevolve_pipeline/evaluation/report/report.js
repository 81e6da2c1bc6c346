// The report's own script: the choice of colours, and charts in place of drawings. Without it everything can be read.
"use strict";
(() => {
  const root = document.documentElement;
  const plotlyFile = new URL("plotly.min.js", document.currentScript.src).href;
  const THEMES = ["auto", "light", "dark"];
  const KEY = "finevolve-theme";
  const hasMouse = matchMedia("(hover: hover)").matches;
  const CHARTS_BEGIN = "400px"; // drawn before they are scrolled to

  // -- colours: a page opened from a disk may not be allowed to remember the choice

  function remembered() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function remember(theme) {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // It holds for this page.
    }
  }

  function wear(theme) {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
  }

  let theme = THEMES.includes(remembered()) ? remembered() : "auto";
  wear(theme); // before the page is painted

  function themeButton() {
    const button = document.getElementById("theme");
    const tell = () => { button.textContent = button.dataset[theme]; };
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      wear(theme);
      remember(theme);
      tell();
      redraw();
    });
    tell();
    button.hidden = false;
  }

  // -- charts

  const drawn = new Set();
  let library = null;

  function plotly() {
    library ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = plotlyFile;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => reject(new Error(`${plotlyFile} could not be read`));
      document.head.append(script);
    });
    return library;
  }

  function json(id) {
    return JSON.parse(document.getElementById(id).textContent);
  }

  // Colours are names of CSS variables; Plotly needs what they mean now.
  function resolver() {
    const probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
    const known = new Map();
    const resolve = (name) => {
      if (!known.has(name)) {
        probe.style.color = name;
        known.set(name, getComputedStyle(probe).color);
      }
      return known.get(name);
    };
    const walk = (value, key) => {
      if (Array.isArray(value)) return value.map((one) => walk(one, key));
      if (value !== null && typeof value === "object") {
        return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, walk(one, name)]));
      }
      const isColour = typeof value === "string" && /color/i.test(key) && /^var\(--[\w-]+\)$/.test(value);
      return isColour ? resolve(value) : value;
    };
    return { walk, resolve, done: () => probe.remove() };
  }

  function specification(place) {
    const chart = json(`${place.dataset.of}-data`);
    const colours = resolver();
    const { data, layout } = colours.walk({ data: chart.data, layout: chart.layout }, "");
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: colours.resolve("var(--ink)") };
    const paper = colours.resolve("var(--paper)");
    const muted = colours.resolve("var(--muted)");
    colours.done();
    for (const trace of data) if (!("x" in trace)) trace.x = chart.x;
    return {
      data,
      layout: {
        ...layout,
        autosize: true,
        font,
        paper_bgcolor: paper,
        plot_bgcolor: paper,
        hoverlabel: { bgcolor: paper, bordercolor: muted, font },
        modebar: { bgcolor: paper, color: muted, activecolor: font.color },
        dragmode: hasMouse ? "zoom" : false, // a finger scrolls the page
      },
    };
  }

  function settings() {
    const texts = json("chart-texts");
    const locales = { [texts.locale]: { dictionary: texts.dictionary, format: texts.format } };
    return {
      responsive: true,
      displaylogo: false,
      displayModeBar: hasMouse ? "hover" : false,
      locale: texts.locale,
      locales,
      // Nothing leaves the page; pictures would need addresses of data, which its policy forbids.
      modeBarButtonsToRemove: ["sendChartToCloud", "toImage", "select2d", "lasso2d"],
      scrollZoom: false,
    };
  }

  async function draw(place) {
    const Plotly = await plotly();
    const { data, layout } = specification(place);
    place.parentElement.hidden = false;
    place.closest("figure").classList.add("drawn");
    await Plotly.react(place, data, layout, settings());
    drawn.add(place);
  }

  function redraw() {
    for (const place of drawn) draw(place);
  }

  function charts() {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target.querySelector(".chart"));
      }
    }, { rootMargin: CHARTS_BEGIN });
    for (const place of document.querySelectorAll(".chart")) seen.observe(place.closest("figure"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    charts();
  });
})();
