/** What scrolls can be scrolled by keyboard: attach to any box that may overflow. */
export function reachable(box: HTMLElement): void {
  box.tabIndex = 0;
}
