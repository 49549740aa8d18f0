// The first line: readable from two metres, and calm while all is well.

import { element, make, say } from "./dom";
import { count, kilowatts, percent } from "./format";
import type { Overview } from "./model";

const MARKS: Record<string, string> = { SAFE: "●", CAPPING: "▲", BRAKE: "■", STALE: "?" };

export function showFirstLine(line: Overview | null, override: { state: string; why: string } | null): void {
  const state = override?.state ?? line?.state ?? "STALE";
  const panel = element("first-line");
  panel.dataset.state = state;
  say(element("state-mark"), MARKS[state] ?? "?");
  say(element("state"), state);
  say(element("state-why"), override?.why ?? line?.why ?? "");
  document.title = `${state} · wattpack`;
  if (line === null) return;
  say(element("headroom"), kilowatts(line.headroomWatts));
  say(element("headroom-note"), `${percent(line.headroomShare)} of the budget of ${line.domain}`);
  say(element("capped"), `${line.cappedGpus.toLocaleString("en")}`);
  const reasons = Object.entries(line.capped).map(([reason, n]) => (reason === "dry run" ? `${n} would be, but for dry run` : `${n} ${reason}`));
  say(element("capped-note"), `of ${count(line.gpus, "GPU")}${reasons.length > 0 ? `: ${reasons.join(" · ")}` : ""}`);
  say(element("limit"), line.limit.split(" (")[0] ?? "");
  say(element("limit-note"), line.limit.includes("(") ? line.limit.slice(line.limit.indexOf("(") + 1, -1) : `of ${line.domain}, by its forecast`);
  say(element("enforcement"), line.enforcement === "DryRun" ? "Dry run" : line.enforcement);
  say(element("enforcement-note"), line.enforcement === "Enforce" ? "caps are written" : line.enforcement === "DryRun" ? "decides, writes nothing" : "the others only watch");
}

export function tokenForm(submit: (token: string) => void): HTMLElement {
  const input = make("input") as HTMLInputElement;
  input.type = "password";
  input.autocomplete = "off";
  input.setAttribute("aria-label", "Bearer token");
  const form = make("form", "token", "Who are you? Paste a token (kubectl create token …): ", input, make("button", "", "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(input.value.trim());
    input.value = "";
  });
  return form;
}
