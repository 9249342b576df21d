/** Lists the targets by name. Each is loaded on first use. */
import type { Target } from './target.ts';

const LOADERS: Readonly<Record<string, () => Promise<Target>>> = {
  json: async () => (await import('./targets/codecs.ts')).json,
  yaml: async () => (await import('./targets/codecs.ts')).yaml,
  protobuf: async () => (await import('./targets/codecs.ts')).protobuf(),
  'json-patch': async () => (await import('./targets/patches.ts')).jsonPatch,
  'merge-patch': async () => (await import('./targets/patches.ts')).mergePatch,
  'strategic-merge': async () => (await import('./targets/patches.ts')).strategicMerge(),
  'structured-merge': async () => (await import('./targets/patches.ts')).structuredMerge(),
  selectors: async () => (await import('./targets/texts.ts')).selectors,
  quantities: async () => (await import('./targets/texts.ts')).quantities,
  names: async () => (await import('./targets/texts.ts')).names,
  paths: async () => (await import('./targets/requests.ts')).paths,
  tokens: async () => (await import('./targets/requests.ts')).tokens,
  cel: async () => (await import('./targets/cel.ts')).cel,
  'cel-compile': async () => (await import('./targets/cel.ts')).celCompile,
  'html-links': async () => (await import('./targets/scanners.ts')).htmlLinks,
  headers: async () => (await import('./targets/scanners.ts')).headers,
  templates: async () => (await import('./targets/scanners.ts')).templates,
  logs: async () => (await import('./targets/scanners.ts')).logs(),
  x509: async () => (await import('./targets/x509.ts')).x509(),
  spdy: async () => (await import('./targets/spdy.ts')).spdy,
  http: async () => (await import('./targets/http.ts')).http(),
};

/** The names of all targets, which `npm run fuzz` accepts. */
export const targetNames: readonly string[] = Object.keys(LOADERS);

/** Loads the target. Throws if there is none of this name. */
export async function loadTarget(name: string): Promise<Target> {
  const loader = LOADERS[name];
  if (loader === undefined) throw new Error(`no target ${name}`);
  return loader();
}
