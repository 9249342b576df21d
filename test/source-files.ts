/** Reads the files of the program with their imports, and lists its folders, for the tests of the architecture. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** The root of the repository. */
export const ROOT: string = join(import.meta.dirname, '..');

/** A file of the program. */
export interface Source {
  readonly path: string;
  readonly text: string;
  /** Repository paths of files that are loaded with this one. */
  readonly imports: readonly string[];
  readonly typeImports: readonly string[];
  readonly packages: readonly string[];
}

const IMPORT = /^(?:import|export)\s+(type\s+)?(?:[^'";]*?\s+from\s+)?['"]([^'"]+)['"];?/gm;
/** Matches imports on first use, and files that workers run. */
export const LATER = /import\(\s*['"]([^'"]+)['"]\s*\)|new URL\(\s*['"](\.[^'"]+)['"]\s*,\s*import\.meta\.url/g;

/** Reads a file by its repository path, with what it imports. */
function readSource(path: string): Source {
  const text = readFileSync(join(ROOT, path), 'utf8');
  const imports: string[] = [];
  const typeImports: string[] = [];
  const packages: string[] = [];
  const repository = (specifier: string): string => relative(ROOT, resolve(ROOT, dirname(path), specifier));
  for (const [, isType, specifier = ''] of text.matchAll(IMPORT)) {
    if (!specifier.startsWith('.')) {
      if (isType === undefined) packages.push(specifier);
    } else if (isType === undefined) imports.push(repository(specifier));
    else typeImports.push(repository(specifier));
  }
  for (const [, later, url] of text.matchAll(LATER)) {
    const specifier = later ?? url ?? '';
    if (specifier.startsWith('.')) typeImports.push(repository(specifier));
  }
  return { path, text, imports, typeImports, packages };
}

/** The files of the program and its tools, sorted by path. */
export const sources: readonly Source[] = globSync('{api,agent,controlplane,cli,scripts}/**/*.ts', { cwd: ROOT })
  .sort()
  .map(readSource);
/**
 * The folders of each side from the lowest to the highest. A file imports from its own folder and from lower ones only, types
 * included, so that each side can be read from the bottom.
 */
export const FLOORS: Readonly<Record<string, readonly string[]>> = {
  api: ['meta', 'component', 'machinery', 'schema', 'codec', 'pki', 'grpc', 'http', 'kinds', 'cel', 'client'],
  agent: [
    'files',
    'model',
    'protocols',
    'network',
    'runtime',
    'sources',
    'host',
    'volumes',
    'pods',
    'resources',
    'node',
    'server',
    'options',
    'assembly',
  ],
  controlplane: [
    'model',
    'readers',
    'pki',
    'scheduler',
    'storage',
    'etcd',
    'authentication',
    'authorization',
    'aggregation',
    'admission',
    'registry',
    'custom-resources',
    'metrics-api',
    'controllers',
    'manifests',
    'bootstrap',
    'options',
    'server',
    'reviews',
    'encryption',
    'backup',
    'audit',
    'standby',
    'start',
  ],
};
