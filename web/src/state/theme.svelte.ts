/** System, light or dark; and colours as the canvas needs them. */

export type Theme = 'system' | 'light' | 'dark';
const KEY = 'training-gym.theme';
const system = matchMedia('(prefers-color-scheme: dark)');

class ThemeState {
  chosen = $state<Theme>((localStorage.getItem(KEY) as Theme | null) ?? 'system');
  /** Grows with every change, so that what draws on a canvas can draw again. */
  version = $state(0);

  constructor() {
    this.#apply();
    system.addEventListener('change', () => this.version++);
  }

  choose(theme: Theme): void {
    this.chosen = theme;
    localStorage.setItem(KEY, theme);
    this.#apply();
  }

  next(): void {
    const order: Theme[] = ['system', 'light', 'dark'];
    this.choose(order[(order.indexOf(this.chosen) + 1) % order.length] as Theme);
  }

  /** A variable of the style sheet as a plain colour, for the theme in force. */
  color(name: string): string {
    void this.version;
    probe ??= document.body.appendChild(Object.assign(document.createElement('span'), { hidden: true }));
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  #apply(): void {
    if (this.chosen === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.chosen;
    this.version++;
  }
}

let probe: HTMLElement | null = null;
export const theme = new ThemeState();
export const SERIES = 10;
export const seriesColor = (index: number): string => `s${index % SERIES}`;
/** A colour with an alpha, whichever notation the browser resolved it to. */
export const faded = (color: string, alpha: number): string =>
  color.startsWith('rgb(') ? color.replace('rgb(', 'rgba(').replace(')', `, ${alpha})`) : color;
