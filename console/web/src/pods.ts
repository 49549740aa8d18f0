// Pending pods by cause, the most important first, and the newest plans.

import { bodyOf, element, fillRows, make, say } from "./dom";
import { count, kilowatts, span } from "./format";
import type { Placement, PlanRow, PodGroup } from "./model";

export function renderPlacement(placement: Placement, nowMs: number): void {
  say(element("pod-count"), `${placement.placed} placed, ${placement.pending} pending${placement.hidden > 0 ? `, ${placement.hidden} in namespaces that you may not list` : ""}`);
  const open = new Set([...element("pending").querySelectorAll<HTMLDetailsElement>("details[open]")].map((d) => d.dataset.key));
  element("pending").replaceChildren(
    ...(placement.groups.length > 0 ? placement.groups.map((group) => groupOf(group, nowMs, open)) : [make("p", "empty", "No pod is pending.")]),
  );
  const plans = placement.plans.map((plan) => [plan.name, String(plan.pods), String(plan.pending), plan.gap === null ? "–" : `${(100 * plan.gap).toFixed(1)} %`, room(plan), plan.method, plan.state]);
  fillRows(bodyOf("plans"), plans, "No plan yet.");
}

function groupOf(group: PodGroup, nowMs: number, open: Set<string | undefined>): HTMLElement {
  const details = make("details", "group") as HTMLDetailsElement;
  details.dataset.key = `${group.reason} ${group.domains.join(" ")}`;
  details.open = open.has(details.dataset.key);
  const where = group.domains.length > 0 ? ` (${group.domains.join(" and ")})` : "";
  details.append(
    make("summary", "", make("strong", "", count(group.count, "pod")), ` · ${count(group.gpus, "GPU")} · ${group.words}${where}`, make("span", "age-note", `oldest ${age(group.oldestMs, nowMs)}`)),
    make("p", "message", group.message || "", group.remedy ? make("span", "remedy", ` ${group.message ? "→ " : ""}${group.remedy}`) : ""),
  );
  const table = make("table", "", make("thead", "", make("tr", "", ...["Pod", "GPUs", "Class", "Age"].map((text) => make("th", "", text))))) as HTMLTableElement;
  fillRows(table.createTBody(), group.pods.map((pod) => [pod.name, String(pod.gpus), pod.priorityClass || String(pod.priority), age(pod.createdMs, nowMs)]), "");
  details.append(table);
  if (group.count > group.pods.length) details.append(make("p", "empty", `and ${group.count - group.pods.length} more`));
  return details;
}

// What the planner may still give away, beside the headroom of the first line, which is budget less draw.
function room(plan: PlanRow): string {
  return plan.headroom === null ? "–" : `${kilowatts(plan.headroom.freeWatts)} in ${plan.headroom.domain} (${kilowatts(plan.headroom.countedWatts)} counted of ${kilowatts(plan.headroom.limitWatts)})`;
}

function age(createdMs: number, nowMs: number): string {
  return createdMs > 0 && nowMs >= createdMs ? span((nowMs - createdMs) / 1000) : "–";
}
