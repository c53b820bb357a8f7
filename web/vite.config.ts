import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The app is served by the Python package; `npm run dev` proxies to a dashboard on its usual port.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../src/training_gym/dashboard/app',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    target: 'es2022',
  },
  server: { proxy: { '/api': 'http://127.0.0.1:7860' } },
});
