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
import { cachedDataVersionTag } from 'node:v8';
import { Script } from 'node:vm';
import type { compiledPath as PathOf, load as Load, scripts as Scripts } from './script-loader.ts';

interface Loader {
  readonly load: typeof Load;
  readonly scripts: typeof Scripts;
  readonly compiledPath: typeof PathOf;
}

const READY_WITHIN_MS = 60_000;
/** The time in which controllers and scheduler are loaded after the control plane is ready. */
const LOADED_AFTER_MS = 1_000;

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

/** Returns the compiled forms of all scripts by the paths of the scripts. */
function compiledForms(): ReadonlyMap<string, Buffer> {
  if (cachedDataVersionTag() !== tag) throw new Error('the program has changed flags of V8 before it was ready');
  const paths = readdirSync(join(folder, 'scripts')).map((name) => join(folder, 'scripts', name));
  const compiled = (path: string): Buffer =>
    (scripts.get(path) ?? new Script(readFileSync(path, 'latin1'), { filename: path })).createCachedData();
  return new Map(paths.map((path) => [path, compiled(path)]));
}

const folder = resolve(process.argv[2] ?? '');
const { load, scripts, compiledPath } = createRequire(join(folder, 'main.js'))('./loader.js') as Loader;
const data = mkdtempSync(join(tmpdir(), 'orchlet-compile-'));
const flags = ['--data-dir', data, '--bind-address', '127.0.0.1', '--secure-port', '0', '-v', '0'];
process.argv = [process.execPath, join(folder, 'main.js'), 'controlplane', ...flags];
const tag = cachedDataVersionTag();
try {
  load('main.js');
  await untilReady(join(data, 'admin.kubeconfig'));
  let forms = compiledForms();
  await sleep(LOADED_AFTER_MS);
  // The program changes flags of V8 some time after its start, and a start would not accept forms that were made under them.
  if (cachedDataVersionTag() === tag) forms = compiledForms();
  for (const [path, form] of forms) writeFileSync(compiledPath(path), form);
} finally {
  rmSync(data, { recursive: true, force: true });
}
process.exit();
