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
 * The rooms of each side from the lowest to the highest: the folders of the first level, which are the **districts**, and
 * those within a district that have a place of their own. A file imports from its own room and from lower ones only, types
 * included, so that each side can be read from the bottom.
 */
export const FLOORS: Readonly<Record<string, readonly string[]>> = {
  api: ['meta', 'component', 'machinery', 'schema', 'codec', 'pki', 'grpc', 'http', 'kinds', 'cel', 'client'],
  agent: [
    'base/files',
    'base/model',
    'base/protocols',
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
    'scheduler',
    'security/pki',
    'security/files',
    'security/webhooks',
    'security/authentication',
    'security/authorization',
    'security/admission',
    'storage',
    'storage/etcd-member',
    'storage/encryption',
    'storage/backup',
    'registry/schemas',
    'registry',
    'registry/aggregation',
    'registry/custom-resources',
    'controllers/metrics-api',
    'controllers',
    'controllers/cluster-objects',
    'controllers/manifests',
    'options',
    'server',
    'server/reviews',
    'server/audit',
    'standby',
    'start',
  ],
  cli: ['command-line', 'process', 'host', 's3', 'backup', 'cluster', 'reset', 'doctor', 'commands'],
};

/** Returns the room of a path such as `agent/pods/housekeeping.ts`, or `undefined` for a file at the root of a side. */
export function roomOf(path: string): string | undefined {
  const [side = '', ...below] = path.split('/');
  const within = below.join('/');
  const rooms = (FLOORS[side] ?? []).filter((room) => within.startsWith(`${room}/`));
  return rooms.toSorted((a, b) => b.length - a.length)[0];
}

/** Returns the district of a path, or `undefined` for a file at the root of a side. */
export const districtOf = (path: string): string | undefined => roomOf(path)?.split('/')[0];

/** Returns the districts of a side from the lowest to the highest. */
export const districtsOf = (side: string): string[] => [
  ...new Set((FLOORS[side] ?? []).map((room) => room.split('/')[0] ?? '')),
];
