import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

// `npm run dev` serves the page from its source and sends what it asks for to a cluster.
const CLUSTER = process.env.TENUTO_URL ?? 'http://127.0.0.1:8080'
const TOKEN = process.env.TENUTO_TOKEN

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: '../services/gateway/page',
    emptyOutDir: true,
    // The Content-Security-Policy allows no inline script or data URL, so small files stay files.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    fs: { allow: ['..'] }, // the reference, which the editor is made of
    proxy: { '/api': { target: CLUSTER, ...(TOKEN && { headers: { Authorization: `Bearer ${TOKEN}` } }) } },
  },
  test: { include: ['src/**/*.test.ts'] },
})
