// The heat map as a table: for keyboards and screen readers, filtered by the same search.

import { bodyOf, element, fillRows, make } from "./dom";
import { FULL_LEVEL, type State, UNKNOWN_LEVEL } from "./model";

const SHOWN = 200;

export function renderGpuTable(state: State, matches: number[] | null, select: (gpu: number) => void): void {
  const details = element<HTMLDetailsElement>("gpu-table-details");
  const topology = state.topology;
  if (!details.open || topology === null || details.contains(document.activeElement?.closest("tbody") ?? null)) return;
  const gpus = matches ?? topology.uuid.map((_, gpu) => gpu);
  // What is held back most comes first.
  const shortfall = (gpu: number): number => (state.isCapped(gpu) ? FULL_LEVEL - (state.limits[gpu] ?? FULL_LEVEL) : state.wouldBeCapped(gpu) ? -1 : -2);
  const sorted = [...gpus].sort((a, b) => shortfall(b) - shortfall(a) || a - b).slice(0, SHOWN);
  const watts = (gpu: number, level: number | undefined): string => (level === undefined || level === UNKNOWN_LEVEL ? "–" : `${Math.round(((topology.requestWatts[gpu] ?? 0) * level) / FULL_LEVEL)} W`);
  const rows = sorted.map((gpu) => {
    const button = make("button", "link", topology.node[gpu] ?? "");
    button.addEventListener("click", () => select(gpu));
    const degrees = state.temperatures[gpu];
    return [button, topology.rack[gpu] ?? "", topology.pod[gpu] || "–", watts(gpu, state.draws[gpu]), watts(gpu, state.limits[gpu]), `${Math.round(topology.requestWatts[gpu] ?? 0)} W`, degrees === undefined || degrees === UNKNOWN_LEVEL ? "–" : `${degrees} °C`, state.isCapped(gpu) ? "yes" : state.wouldBeCapped(gpu) ? "would be" : "no"];
  });
  fillRows(bodyOf("gpu-table"), rows, "No GPU matches.");
  element("gpu-table-note").textContent = gpus.length > SHOWN ? `the first ${SHOWN} of ${gpus.length}; search to narrow it down` : "";
}
