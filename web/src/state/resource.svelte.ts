import { ApiError, get } from './api';
import { session } from './session.svelte';

/** What a URL holds, fetched again whenever the URL changes; the last value stays while it loads. */
export class Resource<T> {
  data = $state.raw<T | null>(null);
  error = $state.raw<ApiError | null>(null);
  loading = $state(false);
  #url = '';
  #abort: AbortController | null = null;

  /** `url` returns null where there is nothing to ask for yet. Call while a component is set up. */
  constructor(url: () => string | null) {
    $effect(() => {
      const next = url();
      if (next === null) {
        this.#url = '';
        this.data = null;
        return;
      }
      if (this.#url.split('?')[0] !== next.split('?')[0]) this.data = null;
      this.#url = next;
      void this.refresh();
      return () => this.#abort?.abort();
    });
  }

  async refresh(): Promise<void> {
    if (!this.#url) return;
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    this.loading = true;
    try {
      this.data = await get<T>(this.#url, abort.signal);
      this.error = null;
    } catch (error) {
      if (abort.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) session.signedOut();
      this.error = error;
    }
    if (!abort.signal.aborted) this.loading = false;
  }
}
