// Forecasts of services, the worst first: a row each; the chosen one is drawn below with what stands behind it.

import { bodyOf, element, make, say } from "./dom";
import { count, figure, percent, quantity, span } from "./format";
import type { ServiceForecast, ServiceForecasts } from "./model";
import { ServiceFan, STATE_WORDS } from "./servicefan";

const FINE = new Set(["Forecast", "Flagged"]);

export class ServicesPanel {
  private shown: ServiceForecasts | null = null;
  private chosen = "";
  private nowMs = 0;
  private readonly fan = new ServiceFan();

  take(shown: ServiceForecasts): void {
    this.shown = shown;
    if (!shown.forecasts.some((row) => row.name === this.chosen)) this.chosen = shown.forecasts[0]?.name ?? "";
    this.render();
  }

  /** Ages move with the clock of the fleet. */
  tellTime(nowMs: number): void {
    const isFirst = this.nowMs === 0;
    this.nowMs = nowMs;
    if (isFirst) this.render();
    for (const cell of bodyOf("services-table").querySelectorAll<HTMLElement>("[data-until]")) say(cell, this.age(Number(cell.dataset.until)));
    this.fan.tellTime(this.now());
  }

  private now(): number {
    return this.nowMs === 0 ? Date.now() / 1000 : this.nowMs / 1000;
  }

  private age(untilSeconds: number): string {
    return ` ${span(Math.max(0, this.now() - untilSeconds))} ago`;
  }

  private choose(name: string): void {
    this.chosen = name;
    this.render();
  }

  private render(): void {
    if (this.shown === null) return;
    const { forecasts, more, hidden } = this.shown;
    say(element("services-count"), countWords(this.shown));
    say(element("services-more"), [forecasts.length > 0 ? "" : "No DemandForecast of a service.", more > 0 ? `and ${more} more, none of them worse` : "", hidden > 0 ? `${hidden} in namespaces that you may not list` : ""].filter(Boolean).join("; "));
    this.renderRows(forecasts);
    const row = forecasts.find((one) => one.name === this.chosen) ?? null;
    element("service").hidden = row === null;
    if (row !== null) this.fan.show(row, this.now());
  }

  private renderRows(forecasts: ServiceForecast[]): void {
    const body = bodyOf("services-table");
    // Rows change places when a state changes: whoever moves by keyboard stays on a name, not on a place.
    const focused = body.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset.name : undefined;
    body.closest("table")!.hidden = forecasts.length === 0;
    body.replaceChildren(...forecasts.map((row) => this.rowOf(row)));
    if (focused !== undefined) body.querySelector<HTMLElement>(`button[data-name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  private rowOf(row: ServiceForecast): HTMLTableRowElement {
    const made = document.createElement("tr");
    const isChosen = row.name === this.chosen;
    made.dataset.chosen = String(isChosen);
    made.dataset.state = row.state;
    made.addEventListener("click", () => this.choose(row.name));
    const choose = make("button", "link", row.name);
    choose.dataset.name = row.name;
    choose.setAttribute("aria-pressed", String(isChosen));
    choose.setAttribute("aria-controls", "service");
    const chip = make("span", "chip", STATE_WORDS[row.state] ?? row.state);
    chip.dataset.state = row.state;
    if (row.why !== "") chip.title = row.why;
    const flags = row.account.flags.length > 0 ? [make("span", "count", ` ${row.account.flags.join(", ")}`)] : [];
    const until = make("span", "count");
    if (row.data_until_seconds !== null) {
      until.dataset.until = String(row.data_until_seconds);
      say(until, this.age(row.data_until_seconds));
    }
    // What nobody may rest on is no figure to read.
    const stands = row.state !== "NotReady" && row.state !== "Expired";
    const cells: (Node | string)[][] = [
      [choose],
      [chip, ...flags],
      [quantity(row.now, row.unit), until],
      [stands ? quantity(row.p50, row.unit) : "–"],
      [stands ? quantity(row.p99, row.unit) : "–"],
      [heldOf(row)],
      [stands && row.replicas !== null ? figure(row.replicas.count) : "–"],
      [stands && row.tokens !== null ? figure(row.tokens.p99) : "–"],
      [madeBy(row)],
    ];
    for (const parts of cells) made.insertCell().append(...parts);
    if (row.replicas?.reason) made.cells[6]!.title = row.replicas.reason;
    return made;
  }
}

function countWords(shown: ServiceForecasts): string {
  const all = shown.forecasts.length + shown.more;
  if (all === 0) return "";
  const told = Object.entries(shown.states).filter(([state]) => !FINE.has(state)).map(([state, n]) => `${n} ${STATE_WORDS[state] ?? state}`);
  return `${count(all, "forecast")}${told.length > 0 ? `: ${told.join(", ")}` : ", all in use"}`;
}

/** Of promises that were really made; of rehearsed windows, and said so, before the first of them is over. */
function heldOf(row: ServiceForecast): string {
  const { windows, violations, live_windows: live, live_violations: missed } = row.account;
  if (live) return `${percent(1 - (missed ?? 0) / live)} of ${live}`;
  if (windows) return `${percent(1 - (violations ?? 0) / windows)} of ${windows} rehearsed`;
  return "–";
}

function madeBy(row: ServiceForecast): string {
  const tiers = row.account.tiers.map((tier) => `${tier.name.split("/")[0]} ${Math.round(100 * tier.weight)} %`);
  return tiers.length > 0 ? tiers.join(", ") : row.method || "–";
}
