import { untrack } from 'svelte';

/** Keys: each page names its own; `?` lists them all. */

export interface Key {
  key: string;
  label: string;
  run: () => void;
}

class Keyboard {
  help = $state(false);
  #layers = $state.raw<Key[][]>([]);

  /** Use while a component is set up; its keys go with it. */
  use(keys: Key[]): void {
    $effect(() => {
      // Untracked: the effect must not depend on what it changes.
      this.#layers = untrack(() => [...this.#layers, keys]);
      return () => {
        this.#layers = this.#layers.filter((layer) => layer !== keys);
      };
    });
  }

  get all(): Key[] {
    return this.#layers.flat();
  }

  handle = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.target as HTMLElement | null;
    const typing = at?.matches?.('input:not([type=checkbox]):not([type=range]), textarea, select');
    if (event.key === 'Escape' && typing) {
      at?.blur();
      return;
    }
    if (typing) return;
    for (const layer of [...this.#layers].reverse()) {
      const found = layer.find((key) => key.key === event.key);
      if (found) {
        event.preventDefault();
        found.run();
        return;
      }
    }
  };
}

export const keyboard = new Keyboard();

/** Put the cursor into the page's search field. */
export function focusSearch(): void {
  document.querySelector<HTMLInputElement>('main [data-search]')?.focus();
}
