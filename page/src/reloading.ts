import { mayReload } from './lib/reloading'

const RELOADED = 'tenuto loaded anew'

/** Where a part of the page cannot be loaded, as after an update of the gateway, the page is loaded anew, once. */
export function reloadOnceForNewFiles(): void {
  window.addEventListener('vite:preloadError', (event) => {
    const last = window.sessionStorage.getItem(RELOADED)
    if (!mayReload(last === null ? undefined : Number(last), Date.now())) return
    event.preventDefault()
    window.sessionStorage.setItem(RELOADED, String(Date.now()))
    window.location.reload()
  })
}
