/**
 * `compile-scripts.ts FOLDER`: runs a control plane of the program in FOLDER until it is ready, and writes the compiled forms
 * of all scripts, which then hold the functions that its start has used. `program-scripts.ts` runs it.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:https';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Script } from 'node:vm';
import type { compiledPath as PathOf, load as Load, scripts as Scripts } from './script-loader.ts';

interface Loader {
  readonly load: typeof Load;
  readonly scripts: typeof Scripts;
  readonly compiledPath: typeof PathOf;
}

const READY_WITHIN_MS = 60_000;
/** The time in which controllers and scheduler are loaded after the control plane is ready. */
const LOADED_AFTER_MS = 2_000;

function isReady(server: string): Promise<boolean> {
  return new Promise((answer) => {
    const request = get(`${server}/readyz`, { rejectUnauthorized: false }, (response) => {
      response.resume();
      answer(response.statusCode === 200);
    });
    request.on('error', () => answer(false));
  });
}

async function untilReady(kubeconfig: string): Promise<void> {
  for (const deadline = performance.now() + READY_WITHIN_MS; performance.now() < deadline; await sleep(20)) {
    if (!existsSync(kubeconfig)) continue;
    const server = /server: (\S+)/.exec(readFileSync(kubeconfig, 'utf8'))?.[1];
    if (server !== undefined && (await isReady(server))) return;
  }
  throw new Error('the control plane whose scripts are compiled is not ready');
}

const folder = resolve(process.argv[2] ?? '');
const { load, scripts, compiledPath } = createRequire(join(folder, 'main.js'))('./loader.js') as Loader;
const data = mkdtempSync(join(tmpdir(), 'orchlet-compile-'));
const flags = ['--data-dir', data, '--bind-address', '127.0.0.1', '--secure-port', '0', '-v', '0'];
process.argv = [process.execPath, join(folder, 'main.js'), 'controlplane', ...flags];
try {
  load('main.js');
  await untilReady(join(data, 'admin.kubeconfig'));
  await sleep(LOADED_AFTER_MS);
  for (const path of readdirSync(join(folder, 'scripts')).map((name) => join(folder, 'scripts', name))) {
    const script = scripts.get(path) ?? new Script(readFileSync(path, 'latin1'), { filename: path });
    writeFileSync(compiledPath(path), script.createCachedData());
  }
} finally {
  rmSync(data, { recursive: true, force: true });
}
process.exit();
