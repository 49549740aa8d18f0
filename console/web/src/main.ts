// Wires the page: one stream, five views. Everything is drawn from the state, never from the DOM.

import "./style.css";
import { renderDomains } from "./domains";
import { HeatMap } from "./heat";
import { type Decision, type Placement, State } from "./model";
import { PowerChart } from "./power";
import { connect, getJson } from "./stream";

const PLACEMENT_PERIOD_MS = 2000;
const state = new State();

function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no element ${id}`);
  return found as T;
}

const chart = new PowerChart(element("power-chart"));
const choice = element<HTMLSelectElement>("domain-choice");
const heat = new HeatMap(element<HTMLCanvasElement>("heat"), state, (gpu) => void explain(gpu));

choice.addEventListener("change", () => {
  location.hash = `domain=${encodeURIComponent(choice.value)}`;
  void chart.choose(choice.value);
});

connect({
  topology(topology) {
    state.takeTopology(topology);
    heat.arrange();
  },
  tick(tick) {
    state.takeTick(tick);
    const table = element<HTMLTableElement>("domains").tBodies[0];
    if (table) renderDomains(table, tick.domains);
    fillChoice(tick.domains.map((domain) => domain.name));
    const chosen = tick.domains.find((domain) => domain.name === choice.value);
    if (chosen) chart.add(tick.wallTimeMs, chosen);
    heat.draw();
    element("label").textContent = tick.label;
    const capped = state.reasons.reduce((count, reason) => count + (reason === 0 ? 0 : 1), 0);
    element("heat-summary").textContent = `${capped} of ${state.levels.length} GPUs capped`;
    if (tick.decisions !== undefined) renderFeed(tick.decisions);
  },
  connection(kind) {
    const status = element("connection");
    status.dataset.state = kind;
    const time = state.tick === null ? "" : new Date(state.tick.wallTimeMs).toISOString().replace("T", " ").slice(0, 19);
    const text = kind === "live" ? `live, ${time} UTC, epoch ${state.tick?.epoch ?? "–"}` : "no connection: figures are old";
    if (status.textContent !== text) status.textContent = text;
  },
});

function fillChoice(names: string[]): void {
  if (choice.options.length === names.length) return;
  const wanted = decodeURIComponent(location.hash.replace("#domain=", "")) || choice.value || names[0] || "";
  choice.replaceChildren(...names.map((name) => new Option(name, name, false, name === wanted)));
  void chart.choose(choice.value);
}

function renderFeed(decisions: Decision[]): void {
  const feed = element("feed");
  if (decisions.length === 0) {
    feed.innerHTML = '<li class="empty">No decision yet: nothing had to be capped.</li>';
    return;
  }
  feed.replaceChildren(
    ...decisions.map((decision) => {
      const item = document.createElement("li");
      const time = document.createElement("time");
      time.textContent = new Date(decision.wall_time_ns / 1e6).toISOString().slice(11, 19);
      const kind = document.createElement("b");
      kind.textContent = ` ${decision.domain} ${decision.kind} `;
      item.append(time, kind, decision.message);
      item.title = decision.id;
      return item;
    }),
  );
}

interface Explanation {
  uuid: string;
  node: string;
  model: string;
  pod: string;
  priority: number;
  drawWatts: number | null;
  limitWatts: number | null;
  requestWatts: number;
  sentence: string;
}

async function explain(gpu: number): Promise<void> {
  const uuid = state.topology?.uuid[gpu];
  if (uuid === undefined) return;
  const answer = await getJson<Explanation>(`api/v1/explain/gpu/${encodeURIComponent(uuid)}`);
  const why = element("why");
  if (answer === null) {
    why.textContent = "No answer from the controller.";
    return;
  }
  const head = document.createElement("strong");
  head.textContent = `${answer.node}, ${answer.model}, ${answer.pod || "no pod"} (priority ${answer.priority}): ${answer.drawWatts ?? "?"} W, limit ${answer.limitWatts ?? "?"} W of ${answer.requestWatts} W. `;
  why.replaceChildren(head, answer.sentence);
}

async function refreshPlacement(): Promise<void> {
  const placement = await getJson<Placement>("api/v1/placement");
  if (placement === null) return;
  element("pod-count").textContent = `${placement.pods.length} placed, ${placement.pending.length} pending`;
  fillRows("pending", placement.pending.slice(0, 100).map((pod) => [`${pod.namespace}/${pod.name}`, String(pod.gpus), pod.priorityClass, pod.message || pod.reason]), "No pod is pending.");
  fillRows("plans", placement.plans.map((plan) => [plan.name, String(plan.pods), String(plan.pending), plan.gap === null ? "–" : `${(100 * plan.gap).toFixed(1)} %`, plan.method, plan.state]), "No plan yet.");
}

function fillRows(table: string, rows: string[][], empty: string): void {
  const body = element<HTMLTableElement>(table).tBodies[0];
  if (!body) return;
  const shown = rows.length > 0 ? rows : [[empty]];
  body.replaceChildren(
    ...shown.map((cells) => {
      const row = document.createElement("tr");
      for (const text of cells) row.insertCell().textContent = text;
      return row;
    }),
  );
}

void refreshPlacement();
setInterval(() => void refreshPlacement(), PLACEMENT_PERIOD_MS);
