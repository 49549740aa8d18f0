// CapacityPlans: what to run, at which cap, what it costs, and what each constraint costs.

import { element, make, say } from "./dom";
import { count, kilowatts, percent, span } from "./format";
import type { Capacity, CapacityPlanRow, PlannedReplicas } from "./model";

// A block for each board stays readable up to about here; larger plans get one block a replica kind.
const MOST_BLOCKS = 96;

export function renderCapacity(capacity: Capacity, nowMs: number): void {
  const unanswered = capacity.plans.filter((plan) => !plan.ready).length;
  const hidden = capacity.hidden > 0 ? `, ${capacity.hidden} in namespaces that you may not list` : "";
  say(element("capacity-count"), capacity.plans.length > 0 || hidden ? `${count(capacity.plans.length + capacity.more, "plan")}, ${unanswered} without an answer${hidden}` : "");
  const open = new Set([...element("capacity").querySelectorAll<HTMLDetailsElement>("details[open]")].map((d) => d.dataset.key));
  const first = open.size === 0 ? capacity.plans[0]?.name : undefined;
  element("capacity").replaceChildren(
    ...(capacity.plans.length > 0 ? capacity.plans.map((plan) => planOf(plan, nowMs, open.has(plan.name) || plan.name === first)) : [make("p", "empty", "No CapacityPlan. `kubectl apply` one, or ask `wattpack plan gpus`.")]),
    ...(capacity.more > 0 ? [make("p", "empty", `and ${capacity.more} more`)] : []),
  );
  element("capacity-legend").hidden = !capacity.plans.some((plan) => plan.replicas.length > 0);
}

/** Ages move with the clock, without drawing the plans anew. */
export function tellCapacityAges(nowMs: number): void {
  for (const note of element("capacity").querySelectorAll<HTMLElement>("[data-solved-ms]")) {
    say(note, solved(Number(note.dataset.solvedMs), note.dataset.ofThisSpec === "true", nowMs));
  }
}

function planOf(plan: CapacityPlanRow, nowMs: number, isOpen: boolean): HTMLElement {
  const details = make("details", "group cplan") as HTMLDetailsElement;
  details.dataset.key = plan.name;
  details.dataset.ready = String(plan.ready);
  details.open = isOpen;
  const note = make("span", "age-note", solved(plan.solvedMs, plan.isOfThisSpec, nowMs));
  note.dataset.solvedMs = String(plan.solvedMs);
  note.dataset.ofThisSpec = String(plan.isOfThisSpec);
  const saved = plan.savedFraction === null ? "" : ` · ${percent(plan.savedFraction)} saved`;
  details.append(
    make("summary", "", make("span", "verdict", plan.ready ? "✓ " : "! "), make("strong", "", plan.name), ` · ${dollars(plan.dollarsPerHour)} an hour · ${kilowatts(plan.powerWatts)}${saved} · ${plan.reason}`, note),
    make("p", "message", plan.message),
  );
  if (plan.replicas.length > 0) details.append(pictureOf(plan.replicas), listOf(plan));
  return details;
}

function pictureOf(replicas: PlannedReplicas[]): HTMLElement {
  const highest = new Map<string, number>();
  for (const row of replicas) highest.set(row.gpuModel, Math.max(highest.get(row.gpuModel) ?? 0, row.capWatts));
  const boards = replicas.reduce((sum, row) => sum + row.replicas * row.gpus, 0);
  const rows = [...replicas].sort((a, b) => a.offer.localeCompare(b.offer) || b.capWatts - a.capWatts);
  return make("ul", "mix", ...rows.map((row) => {
    const share = row.capWatts / (highest.get(row.gpuModel) ?? row.capWatts);
    const words = `${row.replicas} × ${row.gpus > 1 ? `${row.gpus} ` : ""}${row.gpuModel} at ${row.capWatts.toLocaleString("en")} W`;
    const item = make("li", "", make("span", "kind", words, make("span", "count", ` ${row.offer}`)), blocksOf(row, share, boards), make("span", "count serves", row.serves.join(", ")));
    return item;
  }));
}

function blocksOf(row: PlannedReplicas, capShare: number, boards: number): HTMLElement {
  // The lowest caps in use are about half of the limit: the ramp spans what can be told apart.
  const mix = Math.round(100 * Math.min(1, Math.max(0, (capShare - 0.4) / 0.6)));
  const colour = `color-mix(in srgb, var(--ramp-high) ${mix}%, var(--ramp-low))`;
  const blocks = boards <= MOST_BLOCKS ? Array.from({ length: row.replicas }, () => row.gpus) : [row.replicas * row.gpus];
  const bar = make("span", "blocks");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", count(row.replicas * row.gpus, "GPU"));
  bar.style.width = `${(100 * row.replicas * row.gpus) / boards}%`;
  for (const gpus of blocks) {
    const block = make("span", "block");
    block.style.flexGrow = String(gpus);
    block.style.background = colour;
    bar.append(block);
  }
  return make("span", "blocks-of", bar);
}

function listOf(plan: CapacityPlanRow): HTMLElement {
  const list = make("dl");
  const put = (name: string, ...value: (Node | string)[]): void => {
    list.append(make("dt", "", name), make("dd", "", ...value));
  };
  put("Demand", `${plan.requestsPerSecond.toLocaleString("en", { maximumFractionDigits: 2 })} requests a second in ${count(plan.buckets, "bucket")}${plan.goal === "mostRequests" ? `, ${percent(plan.servedFraction)} of each served` : ""}; rates ${plan.ratesFrom === "Given" ? "given" : plan.ratesFrom === "Predicted" ? "predicted" : "given and predicted"}`);
  if (plan.countedRates !== null) put("Hard tiers", carefulness(plan.countedRates));
  const costs = plan.costs;
  if (costs !== null) put("Cost", `${dollars(plan.dollarsPerHour)} an hour: GPUs ${dollars(costs.rent)}, energy ${dollars(costs.energy)}, carbon ${dollars(costs.carbon)}, starts ${dollars(costs.start)}`);
  put("Power", `${kilowatts(plan.powerWatts)} on average${plan.budgetWatts === null ? "" : ` of ${kilowatts(plan.budgetWatts)}`}, p99s add up to ${kilowatts(plan.p99Watts)}`);
  put("CO₂e", `${kilograms(plan.operationalGramsPerHour)} of energy and ${kilograms(plan.embodiedGramsPerHour)} of hardware an hour`);
  if (plan.gap !== null) put("Proof", `within ${percent(Math.max(plan.gap, 0.001))} of the best there can be`);
  put("What constraints cost", plan.constraintCosts.length > 0 ? constraintsOf(plan) : "none costs anything");
  return list;
}

function carefulness(counted: NonNullable<CapacityPlanRow["countedRates"]>): string {
  const shares = [...new Set([percent(counted.leastShare), percent(counted.mostShare)])].join(" to ");
  const words = `count on ${shares} of the mean rates`;
  if (counted.timeFactor === undefined || counted.confidence === undefined) return words;
  return `${words}; predicted ones as if everything took ${counted.timeFactor.toFixed(2)} times as long, as ${percent(counted.confidence)} of measured runs of unknown models stayed below`;
}

function constraintsOf(plan: CapacityPlanRow): HTMLElement {
  const most = Math.max(...plan.constraintCosts.map((cost) => cost.gain));
  return make("ul", "constraint-costs", ...plan.constraintCosts.map((cost) => {
    const bar = make("span", "cost-bar");
    bar.style.width = `${(10 * cost.gain) / most}em`;
    const words = plan.goal === "mostRequests" ? `${percent(cost.gain)} more served` : `${dollars(cost.gain)} an hour less`;
    return make("li", "", bar, ` without ${cost.constraint}: ${words}`);
  }));
}

function dollars(value: number | null): string {
  return value === null ? "–" : `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

function kilograms(grams: number | null): string {
  return grams === null ? "–" : `${(grams / 1000).toLocaleString("en", { maximumSignificantDigits: 3 })} kg`;
}

function solved(solvedMs: number, isOfThisSpec: boolean, nowMs: number): string {
  if (solvedMs === 0) return "not answered yet";
  const age = nowMs >= solvedMs ? `solved ${span((nowMs - solvedMs) / 1000)} ago` : "solved just now";
  return isOfThisSpec ? age : `${age}, for an earlier spec`;
}
