import { defineConfig } from "vite";

// Relative addresses, one script and one style sheet: nothing is ever asked from another host.
export default defineConfig({
  base: "./",
  build: { outDir: "static", emptyOutDir: true, assetsInlineLimit: 0, chunkSizeWarningLimit: 300 },
});
