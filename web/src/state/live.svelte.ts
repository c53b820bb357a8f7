/**
 * One stream of deltas for the tab: server-sent events whose id is the cursor, polling where a proxy
 * holds the stream up. A tab that nobody sees holds no connection, so that many tabs can be open.
 */
import { address, get } from './api';
import type { Delta } from './types';

type Listener = (delta: Delta) => void;

const SILENT_MS = 12_000;
const POLL_MS = 2_000;
/** Answers to polling before the stream is tried again. */
const POLLS = 30;

class Live {
  state = $state<'off' | 'live' | 'polling' | 'waiting'>('off');
  now = $state(Date.now() / 1000);
  #topics = new Map<Listener, string[]>();
  #source: EventSource | null = null;
  #cursor = '';
  /** What the cursor belongs to: a tab that was hidden goes on where it was. */
  #cursorOf = '';
  #watching = '';
  #timer = 0;
  #heard = 0;

  constructor() {
    setInterval(() => this.#tick(), 1000);
    document.addEventListener('visibilitychange', () => this.#open(true));
  }

  /** Hear of changes to runs (`*`: of all, as rows of the list) while a component lives. */
  watch(runs: () => string[], listener: Listener): void {
    $effect(() => {
      this.#topics.set(listener, runs());
      queueMicrotask(() => this.#open());
      return () => {
        this.#topics.delete(listener);
        queueMicrotask(() => this.#open());
      };
    });
  }

  #open(anew = false): void {
    const runs = [...new Set([...this.#topics.values()].flat())].sort();
    const wanted = document.hidden ? '' : runs.join('\n');
    if (wanted === this.#watching && !anew) return;
    this.#close();
    if (wanted && wanted !== this.#cursorOf) {
      this.#cursor = '';
      this.#cursorOf = wanted;
    }
    if (!wanted) {
      this.state = 'off';
      return;
    }
    this.#watching = wanted;
    this.#heard = Date.now();
    this.state = 'waiting';
    const source = new EventSource(address('stream', { run: runs, after: this.#cursor }));
    this.#source = source;
    source.onopen = () => this.#hear();
    source.addEventListener('delta', (event) => this.#take(JSON.parse(event.data), event.lastEventId));
    source.addEventListener('beat', (event) => {
      this.#cursor = event.lastEventId || this.#cursor;
      this.#hear();
    });
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) this.#poll();
      else this.state = 'waiting';
    };
  }

  #hear(): void {
    this.#heard = Date.now();
    this.state = 'live';
  }

  #take(delta: Delta, cursor: string): void {
    this.#cursor = cursor || this.#cursor;
    this.#hear();
    for (const listener of [...this.#topics.keys()]) listener(delta);
  }

  #tick(): void {
    this.now = Date.now() / 1000;
    if (this.#source && Date.now() - this.#heard > SILENT_MS) this.#poll();
  }

  /** The stream is silent or refused: ask for the same deltas, and now and then for the stream. */
  #poll(): void {
    const watching = this.#watching;
    this.#close();
    this.#watching = watching;
    let answers = 0;
    const ask = async (): Promise<void> => {
      try {
        const runs = watching.split('\n');
        const said = await get<{ cursor: string; deltas: Delta[] }>(
          address('changes', { run: runs, after: this.#cursor }),
        );
        if (this.#watching !== watching) return;
        this.#cursor = said.cursor;
        for (const delta of said.deltas) for (const hear of [...this.#topics.keys()]) hear(delta);
        if (this.state === 'waiting' || ++answers >= POLLS) return this.#open(true);
        this.state = 'polling';
      } catch {
        this.state = 'waiting';
      }
      if (this.#watching === watching) this.#timer = setTimeout(ask, POLL_MS);
    };
    this.#timer = setTimeout(ask, 0);
  }

  #close(): void {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
    this.#watching = '';
  }
}

export const live = new Live();
