/**
 * Checks the rules of the architecture as data, with a reason for each exception: imports and exports, time, connections,
 * files, JSON, comments, names of files, and the size of files and functions.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';
import { districtOf, districtsOf, FLOORS, LATER, ROOT, roomOf, type Source, sources } from './source-files.ts';

/** What each folder may import besides itself, and why. */
const ALLOWED: Readonly<Record<string, { readonly from: readonly string[]; readonly why: string }>> = {
  api: { from: [], why: 'both sides share it, so it knows neither' },
  agent: { from: ['api'], why: 'it meets the control plane over the API only' },
  controlplane: { from: ['api'], why: 'it meets the agent over the API only' },
  cli: { from: ['agent', 'controlplane', 'api'], why: 'the command puts them together' },
  scripts: { from: ['agent', 'controlplane', 'api', 'cli'], why: 'development tools use anything' },
};

/** Files that are entered from outside: commands, workers, reporters. */
const ENTRIES: ReadonlySet<string> = new Set([
  'cli/main.ts',
  'controlplane/storage/sqlite/worker.ts',
  'api/codec/yaml-worker.ts',
]);

/** Development tools that other ones run as a process. */
const RUN_BY_SCRIPTS: ReadonlySet<string> = new Set(['scripts/images/build.ts', 'scripts/compile-scripts.ts']);

/** Whether the file is a development tool: a shell script of the same name runs it, or another tool. */
const isScript = (path: string): boolean =>
  path.startsWith('scripts/') && (existsSync(join(ROOT, path.replace(/\.ts$/, ''))) || RUN_BY_SCRIPTS.has(path));

/**
 * Packages that must not be loaded with the program: imported for types, or on first use. `node-http.ts` says why it is one.
 */
const LAZY: readonly string[] = ['node:http', '@kubernetes/client-node', '@grpc/grpc-js', 'systeminformation'];

const folderOf = (path: string): string => path.split('/')[0] ?? '';

test('imports point the allowed way', () => {
  const wrong = sources.flatMap(({ path, imports, typeImports }) => {
    const folder = folderOf(path);
    const allowed = ALLOWED[folder];
    assert.ok(allowed, `no rule for ${folder}`);
    return [...imports, ...typeImports]
      .filter(
        (target) => target.endsWith('.ts') && folderOf(target) !== folder && !allowed.from.includes(folderOf(target)),
      )
      .map((target) => `${path} imports ${target}: ${folder} may not, because ${allowed.why}`);
  });
  assert.deepEqual(wrong, []);
});

test('the tables of docs/architecture.md list the districts from the highest to the lowest', () => {
  const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
  for (const [heading, side] of [
    ['`api/`', 'api'],
    ['agent', 'agent'],
    ['control plane', 'controlplane'],
    ['`cli/`', 'cli'],
  ] as const) {
    const [rows = ''] = page.split(`| ${heading}, from the top | owns |\n| --- | --- |\n`)[1]?.split('\n\n') ?? [];
    const cells = rows.split('\n').map((row) => row.split('|')[1] ?? '');
    const folders = cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)\/`/g)].map(([, folder]) => folder));
    assert.deepEqual(folders, districtsOf(side).toReversed());
  }
});

/** The sides whose districts each have a page, `README.md`. */
const WITH_PAGES: readonly string[] = ['agent', 'controlplane'];

for (const side of WITH_PAGES)
  for (const district of districtsOf(side))
    test(`the page of ${side}/${district} names its folders, and no others`, () => {
      const lines = readFileSync(join(ROOT, side, district, 'README.md'), 'utf8')
        .trimEnd()
        .split('\n');
      assert.equal(lines[0], `# ${side}/${district}`);
      assert.ok(lines.length <= 40, `it has ${lines.length} lines; a page has 40 at most`);
      assert.deepEqual(
        lines.filter((line) => line.length > 150),
        [],
      );
      const folders = readdirSync(join(ROOT, side, district), { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => name);
      // A name without a path is a folder of the district, or one of the repository.
      const named = [...lines.join('\n').matchAll(/`([\w-]+)\/`/g)]
        .map(([, folder = '']) => folder)
        .filter((folder) => folders.includes(folder) || !existsSync(join(ROOT, folder)));
      assert.deepEqual([...new Set(named)].toSorted(), folders.toSorted());
    });

/** The files that choose a runtime, or search all runtimes for what an agent has left. */
const KNOWS_ADAPTERS: ReadonlySet<string> = new Set(['agent/runtime/select-runtime.ts', 'agent/runtime/leftovers.ts']);

test('only the choice of a runtime and the search for leftovers know the adapters of runtimes', () => {
  const adapterOf = (path: string): string | undefined => /^agent\/runtime\/(?:cri|docker)\//.exec(path)?.[0];
  const program = sources.filter(({ path }) => !path.startsWith('scripts/'));
  const knowing = program.filter(({ path, imports, typeImports }) =>
    [...imports, ...typeImports].some((target) => {
      const adapter = adapterOf(target);
      return adapter !== undefined && !path.startsWith(adapter);
    }),
  );
  assert.deepEqual(knowing.map(({ path }) => path).toSorted(), [...KNOWS_ADAPTERS].toSorted());
});

test('within a side, imports point to lower rooms only', () => {
  const floorOf = (path: string): number => {
    const floors = FLOORS[folderOf(path)] ?? [];
    // Files of the side's root put the folders together.
    return path.split('/').length === 2 ? floors.length : floors.indexOf(roomOf(path) ?? '');
  };
  const homeless = sources
    .map(({ path }) => path)
    .filter((path) => floorOf(path) < 0 && (FLOORS[folderOf(path)] ?? []).length > 0);
  assert.deepEqual(homeless, []);
  const upward = sources.flatMap(({ path, imports, typeImports }) =>
    [...imports, ...typeImports]
      .filter(
        (target) =>
          target.endsWith('.ts') && folderOf(target) === folderOf(path) && FLOORS[folderOf(path)] !== undefined,
      )
      .filter((target) => floorOf(target) > floorOf(path))
      .map((target) => `${path} -> ${target}`),
  );
  assert.deepEqual(upward, []);
});

test('the districts of a side and its root stand on at most eight floors', () => {
  for (const side of ['agent', 'controlplane']) {
    const below = new Map(districtsOf(side).map((district) => [district, new Set<string>()]));
    for (const { path, imports, typeImports } of sources.filter((source) => folderOf(source.path) === side))
      for (const target of [...imports, ...typeImports].filter((each) => folderOf(each) === side)) {
        const [from, to] = [districtOf(path), districtOf(target)];
        if (from !== undefined && to !== undefined && from !== to) below.get(from)?.add(to);
      }
    const floors = new Map<string, number>();
    // The order of the rooms is that of the districts, so the floors of all lower districts are known.
    for (const [district, lower] of below)
      floors.set(district, 1 + Math.max(0, ...[...lower].map((one) => floors.get(one) ?? Infinity)));
    assert.ok(1 + Math.max(...floors.values()) <= 8, `${side}: ${JSON.stringify([...floors])}`);
  }
});

test('files do not import each other in circles, types and later imports included', () => {
  const graph = new Map(sources.map(({ path, imports, typeImports }) => [path, [...imports, ...typeImports]]));
  const state = new Map<string, 'open' | 'done'>();
  const cycles: string[] = [];
  const visit = (path: string, trail: readonly string[]): void => {
    if (state.get(path) === 'done') return;
    if (state.get(path) === 'open') {
      cycles.push([...trail.slice(trail.indexOf(path)), path].join(' -> '));
      return;
    }
    state.set(path, 'open');
    for (const next of graph.get(path) ?? []) visit(next, [...trail, path]);
    state.set(path, 'done');
  };
  for (const path of graph.keys()) visit(path, []);
  assert.deepEqual(cycles, []);
});

test('every file is used by the program', () => {
  const used = new Set(sources.flatMap(({ imports, typeImports }) => [...imports, ...typeImports]));
  const forgotten = sources
    .map(({ path }) => path)
    .filter((path) => !used.has(path) && !ENTRIES.has(path) && !isScript(path));
  assert.deepEqual(forgotten, []);
});

/** Exports that no other file of the program imports, and what they are for. */
const FOR_OTHERS: ReadonlyMap<string, string> = new Map([
  [
    'controlplane/security/authentication/authenticators.ts AUTHENTICATORS',
    'the rows that docs/security.md has to list',
  ],
  ['controlplane/security/authorization/authorizers.ts AUTHORIZERS', 'the same'],
  ['controlplane/main.ts ControlPlaneOptions', 'users of the npm package import it'],
  ['controlplane/main.ts startControlPlane', 'the same'],
]);

const DECLARED = /^export (?:async |abstract )*(?:function\*?|class|const|let|interface|type|enum) ([\w$]+)/gm;
const PASSED_ON = /^export (?:type )?\{([^}]*)\}/gm;
const NAMED = /^(?:import|export)\s+(?:type\s+)?(?:\w+,\s*)?\{([^}]*)\}\s+from\s+['"](\.[^'"]+)['"]/gm;

const WHOLE = /^import\s+(?:type\s+)?\*\s+as\s+\w+\s+from\s+['"](\.[^'"]+)['"]/gm;

/** Returns the names that a list between braces imports, as the imported file has them. */
const namesIn = (list: string): string[] =>
  list
    .split(',')
    .map(
      (name) =>
        name
          .trim()
          .replace(/^type /, '')
          .split(' as ')[0] ?? '',
    )
    .filter((name) => name !== '');

/** Returns `path name` of everything that the files import. A later import takes each name that the file mentions. */
function importedBy(files: readonly Pick<Source, 'path' | 'text'>[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const { path, text } of files) {
    const target = (specifier: string): string => relative(ROOT, resolve(ROOT, dirname(path), specifier));
    for (const [, list = '', specifier = ''] of text.matchAll(NAMED))
      for (const name of namesIn(list)) found.add(`${target(specifier)} ${name}`);
    for (const [, specifier = ''] of text.matchAll(WHOLE)) found.add(`${target(specifier)} *`);
    for (const [, later = ''] of text.matchAll(LATER))
      if (later.startsWith('.')) for (const [word] of text.matchAll(/[\w$]+/g)) found.add(`${target(later)} ${word}`);
  }
  return found;
}

test('a file exports what another file imports; tests alone may import only what the file itself uses', () => {
  const tests = globSync('test/**/*.ts', { cwd: ROOT }).map((path) => ({
    path,
    text: readFileSync(join(ROOT, path), 'utf8'),
  }));
  const byProgram = importedBy(sources);
  const byTests = importedBy(tests);
  const unused = sources.flatMap(({ path, text }) => {
    const names = [...text.matchAll(DECLARED)].map(([, name = '']) => name);
    const code = text.replaceAll(/^\s*(\*|\/\/|\/\*).*$/gm, '');
    const isUsedHere = (name: string): boolean => code.split(new RegExp(`(?<![\\w$])${name}(?![\\w$])`)).length > 2;
    return names
      .map((name) => ({ name, at: `${path} ${name}` }))
      .filter(({ at }) => !byProgram.has(at) && !byProgram.has(`${path} *`))
      .filter(({ name, at }) => !byTests.has(at) || !isUsedHere(name))
      .map(({ at }) => at);
  });
  assert.deepEqual(unused.toSorted(), [...FOR_OTHERS.keys()].toSorted());
});

test('no exported variable is assigned later, because scripts of the bundled program copy exports', () => {
  const variables = sources.filter(({ text }) => /^export (?:let|var) /m.test(text)).map(({ path }) => path);
  assert.deepEqual(variables, []);
});

test('heavy packages are not loaded with the program', () => {
  const loaded = sources
    .filter(({ path }) => !path.startsWith('scripts/'))
    .flatMap(({ path, packages }) =>
      packages.filter((name) => LAZY.includes(name)).map((name) => `${path} loads ${name}`),
    );
  assert.deepEqual(loaded, []);
});

const sourceOf = (wanted: string): Source | undefined => sources.find(({ path }) => path === wanted);

/** Returns the files that are loaded with this one, types and later imports excluded. */
function loadedWith(path: string): string[] {
  const loaded = new Set([path]);
  for (const each of loaded) for (const next of sourceOf(each)?.imports ?? []) loaded.add(next);
  return [...loaded];
}

/** The rooms of `controllers/` that belong to the API server, and that its start runs itself. */
const OF_THE_START: ReadonlySet<string> = new Set([
  'controllers/cluster-objects',
  'controllers/manifests',
  'controllers/metrics-api',
]);

test('a control plane is ready before controllers and scheduler are loaded, and loads etcd and encryption only for use', () => {
  const later = /^controlplane\/(?:scheduler\/|controllers\/[^/]+\/|storage\/(?:etcd|encryption)\/|start\/etcd-store)/;
  // The start uses the names and classes of these small files.
  const small = new Set([
    'controlplane/storage/etcd/keys.ts',
    'controlplane/storage/encryption/reencrypt.ts',
    'controlplane/controllers/certificates/certificate-signer.ts',
    'controlplane/controllers/certificates/certificate-requests.ts',
  ]);
  const early = loadedWith('controlplane/main.ts').filter(
    (path) => later.test(path) && !small.has(path) && !OF_THE_START.has(roomOf(path) ?? ''),
  );
  assert.deepEqual(early, []);
});

test('a command prepares the start of a control plane before it loads the control plane, and up loads the agent after it', () => {
  const early = ['cli/commands/controlplane.ts', 'cli/commands/up.ts'].map((path) =>
    loadedWith(path).filter((loaded) => /^(?:controlplane|agent)\/main\.ts$|^cli\/run-controlplane/.test(loaded)),
  );
  assert.deepEqual(early, [[], []]);
});

test('a control plane starts without packages that only some of its requests and threads need', () => {
  const heavy = loadedWith('controlplane/main.ts').flatMap((path) =>
    (sourceOf(path)?.packages ?? [])
      .filter((name) => name === 'better-sqlite3' || name === 'ws')
      .map((name) => `${path} loads ${name}`),
  );
  assert.deepEqual(heavy, []);
});

test('time is passed in: no bare clock or timer outside clock.ts', () => {
  const bare = sources
    .filter(({ path }) => !path.startsWith('scripts/') && !path.endsWith('/clock.ts'))
    .flatMap(({ path, text }) =>
      text
        .split('\n')
        .map((line, index) => ({ line, at: `${path}:${index + 1}` }))
        .filter(
          ({ line }) =>
            /\b(Date\.now|setTimeout|setInterval)\(/.test(line) &&
            !/^\s*(\*|\/\/|\/\*)/.test(line) &&
            !/\.setTimeout\(/.test(line),
        )
        .map(({ at, line }) => `${at}: ${line.trim()}`),
    );
  assert.deepEqual(bare, []);
});

/**
 * Files that open connections by themselves. All others go through `api/http/dialer.ts`, which checks addresses: what the
 * API, another server's answer or a manifest names must not lead to this host.
 */
const CONNECTING: ReadonlyMap<string, string> = new Map([
  ['api/http/dialer.ts', 'it checks the addresses'],
  ['api/http/node-http.ts', 'it passes node:http on, for servers as well'],
  ['api/client/http-connections.ts', 'the server is that of a kubeconfig'],
  ['agent/network/clusterdns/upstream.ts', 'name servers are those of a file of the host'],
  ['agent/runtime/known-sockets.ts', 'it finds out whether a container runtime answers on a unix socket'],
  [
    'agent/runtime/cri/remote-streams.ts',
    'the container runtime names the address over its socket: its own, on loopback',
  ],
  ['agent/runtime/docker/port-forward.ts', 'the container runtime names the address of the sandbox over its socket'],
  ['agent/runtime/docker/docker-client.ts', 'the socket of the container runtime is that of a flag'],
  [
    'api/grpc/grpc-channel.ts',
    'its servers are sockets and servers of flags and of the host; the dialer checks the address of a probe before',
  ],
  [
    'agent/network/clusterdns/cluster-dns.ts',
    'it opens datagram sockets to serve names, and answers the clients that asked',
  ],
  [
    'cli/doctor/network-probes.ts',
    'orchlet doctor tries addresses of nodes, pods and services of its cluster and sends nothing',
  ],
  ['cli/s3/exchange.ts', 'the server is that of a flag or a variable; redirects are not followed'],
  ['cli/commands/explain-eviction.ts', 'the agent is that of the command line'],
]);

/** Imported values that open connections; `default` is the whole module. */
const CONNECTORS: Readonly<Record<string, readonly string[]>> = {
  'node:net': ['default', 'connect', 'createConnection', 'Socket', 'Stream'],
  'node:tls': ['default', 'connect'],
  'node:http': ['default', 'request', 'get', 'ClientRequest', 'globalAgent', 'WebSocket'],
  'node:https': ['default', 'request', 'get', 'globalAgent'],
  'node:quic': ['default', 'connect'],
  'node:http2': ['default', 'connect'],
  'node:dgram': ['default', 'createSocket'],
  'node-http.ts': ['request'],
  ws: ['default', 'WebSocket'],
  dockerode: ['default'],
  undici: ['default', 'fetch', 'request', 'stream', 'connect', 'Client', 'Pool', 'Agent', 'WebSocket', 'EventSource'],
};
const VALUES = /^import\s+(?!type\b)([^'";]*?)\s+from\s+'([^']+)';/gm;
const CALLS = [
  /(^|[^.\w#])(globalThis\.)?(fetch|EventSource)\b/,
  /\bnew (globalThis\.)?WebSocket\(/,
  /\bcredentials\.create(Insecure|Ssl)\(/,
  /\bgetBuiltinModule\('node:(net|tls|http|https|http2|dgram|quic)/,
  /\b(import|require)\('(node:(net|tls|http|https|http2|dgram|quic)|ws|undici|dockerode)'/,
];
/** Texts other than names of modules, in which words such as "fetch" have no meaning. */
const TEXTS = /'[^'\n]* [^'\n]*'|`[^`\n]*`/g;

/** Returns the ways in which a file opens connections. */
function connectorsOf({ path, text }: Source): string[] {
  const found: string[] = [];
  for (const [, clause = '', specifier = ''] of text.matchAll(VALUES)) {
    const names = CONNECTORS[specifier.endsWith('/node-http.ts') ? 'node-http.ts' : specifier];
    if (names === undefined) continue;
    const [whole = '', list = ''] = clause.split(/[{}]/);
    const values = list
      .split(',')
      .filter((name) => !/^\s*type\b/.test(name))
      .map((name) => name.trim().split(' ')[0] ?? '');
    if (whole.replaceAll(/[\s,]/g, '') !== '') values.push('default');
    found.push(...values.filter((name) => names.includes(name)).map((name) => `${path}: ${name} of ${specifier}`));
  }
  const lines = text.split('\n').filter((line) => !/^\s*(\*|\/\/|\/\*)/.test(line));
  const calls = lines.filter((line) => CALLS.some((call) => call.test(line.replaceAll(TEXTS, "''"))));
  found.push(...calls.map((line) => `${path}: ${line.trim()}`));
  return found;
}

test('connections are opened by the dialer, and by the few files that are named with a reason', () => {
  const connecting = sources.filter(({ path }) => !path.startsWith('scripts/'));
  assert.deepEqual(connecting.filter(({ path }) => !CONNECTING.has(path)).flatMap(connectorsOf), []);
  const idle = connecting.filter((source) => CONNECTING.has(source.path) && connectorsOf(source).length === 0);
  assert.deepEqual(
    idle.map(({ path }) => path),
    [],
    'these open no connection any more',
  );
  const missing = [...CONNECTING.keys()].filter((path) => !connecting.some((source) => source.path === path));
  assert.deepEqual(missing, []);
});

/** A URL that is resolved against a base can leave it: `//host`, `..` and backslashes in the text change host and path. */
const RESOLVED_URLS: ReadonlyMap<string, string> = new Map([
  ['api/http/dialer.ts', 'a redirect is relative to the page; the rules of the purpose decide whether it is followed'],
  ['cli/process/source-resolution.ts', 'an import of a source names a file relative to that of the importing source'],
]);

const RESOLVED_URL = /(?:new URL|URL\.parse|URL\.canParse)\((?:`[^`]*`|\([^()]*\)|[^(),`])*,\s*[^\s)][^)\n]*/g;

test('no URL is resolved against a base, except where a reason is given', () => {
  const resolved = sources
    .filter(({ path }) => !path.startsWith('scripts/') && !RESOLVED_URLS.has(path))
    .flatMap(({ path, text }) =>
      [...text.matchAll(RESOLVED_URL)]
        .filter(([call]) => !call.includes('import.meta.url'))
        .map(([call]) => `${path}: ${call}`),
    );
  assert.deepEqual(resolved, []);
});

const OPEN_TABLE = /^(?:export )?const ([A-Za-z_]+): (?:Readonly<)?Record<string,/gm;

/** Returns the places where a table of the file is read with a key that is not a literal. */
function lookUpsIn({ path, text }: Source): string[] {
  const names = [...text.matchAll(OPEN_TABLE)].map(([, name = '']) => name);
  const readers = sources.filter((other) => other.path === path || [...other.imports].includes(path));
  return names.flatMap((name) =>
    readers
      .filter((reader) => new RegExp(`(?<![\\w.])${name}(?:\\?\\.)?\\[(?!')`).test(reader.text))
      .map((reader) => `${reader.path}: ${name}[…]`),
  );
}

test('what is looked up by text is a Map: a plain object also has what every object inherits', () => {
  const tables = sources.filter(({ path }) => !path.startsWith('scripts/'));
  assert.deepEqual(tables.flatMap(lookUpsIn), []);
  const inMaps = /\b(?:labels|annotations|binaryData|nodeSelector|matchLabels)\??\.?\[[a-z]\w*(?:\.\w+)*\]/;
  const written = /\] (?:\?\?)?= |delete |hasOwn|\$\{/;
  assert.deepEqual(
    tables.flatMap(({ path, text }) =>
      text
        .split('\n')
        .filter((line) => inMaps.test(line) && !written.test(line))
        .map((line) => `${path}: ${line.trim()}`),
    ),
    [],
  );
});

/** Methods of collections and streams that certainly return no promise. */
const SYNCHRONOUS = /\bvoid \(|\bvoid delete |\.(push|add|delete|set|write|clear|destroy)\(/;

test('no arrow function hides a promise behind void, where the linter does not look', () => {
  const hidden = sources
    .filter(({ path }) => !path.startsWith('scripts/'))
    .flatMap(({ path, text }) =>
      text
        .split('\n')
        .map((line, index) => ({ line, at: `${path}:${index + 1}` }))
        .filter(({ line }) => {
          const body = /=> void (?!\|)([\w#(].*)$/.exec(line)?.[0];
          return (
            body !== undefined && (!SYNCHRONOUS.test(body) || /client\./.test(body)) && !/^=> void \w+ = /.test(body)
          );
        })
        .map(({ at, line }) => `${at}: ${line.trim()}`),
    );
  assert.deepEqual(hidden, []);
});

/** Files with a loop that lasts until a signal aborts and that no primitive of `api/machinery/` runs. */
const OWN_LOOPS: ReadonlyMap<string, string> = new Map([
  ['api/machinery/wakeable-loop.ts', 'it is the primitive'],
  ['api/machinery/background.ts', 'it is the primitive'],
  ['api/client/leader-election.ts', 'its attempts end when the lease is held, and are bounded by its deadline'],
  ['api/client/reflector.ts', 'each step depends on how the one before ended'],
  ['agent/host/process/lock-file.ts', 'it ends when another process waits for the lock'],
  ['agent/pods/run-once.ts', 'it ends with the pods'],
  ['agent/node/shutdown/node-shutdown.ts', 'it connects again, after a backoff also if the connection ended well'],
  ['agent/runtime/cri/cri-events.ts', 'it follows a stream or, where there is none, lists'],
  ['agent/runtime/docker/log-writer.ts', 'it ends with the container'],
  ['agent/runtime/logs/log-reader.ts', 'it reads a file as it grows'],
  ['agent/sources/pod-config.ts', 'it restarts a source that failed'],
  ['agent/volumes/referenced-objects.ts', 'it ends with an object that cannot change'],
  ['controlplane/storage/etcd-member/etcd-supervisor.ts', 'it ends with a member that was removed'],
  ['controlplane/standby/log-stream.ts', 'it reads a log as it grows'],
  ['controlplane/storage/etcd/etcd-watch.ts', 'how it goes on depends on how the watch ended'],
]);

test('loops until a signal aborts are run by the primitives, so that no failed turn ends them', () => {
  const own = sources
    .filter(({ text }) => /\bwhile \(!(?:[\w#]+\.)*aborted\) \{/.test(text))
    .map(({ path }) => path)
    .toSorted();
  assert.deepEqual(own, [...OWN_LOOPS.keys()].toSorted());
});

test('there are no escapes from the type system, and no empty catch', () => {
  const escapes = sources.flatMap(({ path, text }) =>
    text
      .split('\n')
      .map((line, index) => ({ line, at: `${path}:${index + 1}` }))
      .filter(
        ({ line }) =>
          /(:|<|\bas) any\b(?=[\s;,)>\]|=]|$)|@ts-ignore|@ts-expect-error|catch\s*(\([^)]*\))?\s*\{\s*\}/.test(line) &&
          !/^\s*(\*|\/\/|\/\*)/.test(line),
      )
      .map(({ at, line }) => `${at}: ${line.trim()}`),
  );
  assert.deepEqual(escapes, []);
});

/** The sides in which each dropped error has its reason in a comment. */
const WITH_REASONS: ReadonlySet<string> = new Set(['agent']);

/** Handlers that ignore the error: `catch {`, `.catch(() => …)`, and empty listeners of stream errors. */
const DROPPED_ERROR = /\bcatch \{$|\.catch\(\(\)(: [^=]*)? =>|\.on\('error', \(\) => undefined\)/;

test('an error that is dropped has its reason in a comment above or below', () => {
  const isComment = (line: string | undefined): boolean => /(^|\s)\/\/ |^\s*(\*|\/\*)/.test(line ?? '');
  const silent = sources
    .filter(({ path }) => WITH_REASONS.has(folderOf(path)))
    .flatMap(({ path, text }) => {
      const lines = text.split('\n');
      return lines.flatMap((line, index) =>
        !DROPPED_ERROR.test(line) || isComment(line) || isComment(lines[index - 1]) || isComment(lines[index + 1])
          ? []
          : [`${path}:${index + 1}: ${line.trim()}`],
      );
    });
  assert.deepEqual(silent, []);
});

test('errors stand in the field err of a log line, where the logger prints their stack', () => {
  const wrong = sources.flatMap(({ path, text }) =>
    [
      ...text.matchAll(
        /\blog(?:ger)?\.(?:debug|info|warn|error)\(\s*\{[^{}]*?(?<![\w.:] ?)\b(?:error|cause)\s*[,}][^\n]*/g,
      ),
    ]
      .filter(([call]) => !/err: (?:error|cause)\s*[,}]/.test(call))
      .map(([call]) => `${path}: ${call}`),
  );
  assert.deepEqual(wrong, []);
});

/** Files that parse JSON without the codec, where integers beyond 2^53 become doubles, and why they may. */
const LOSSY_JSON: Readonly<Record<string, string>> = {
  'api/codec/json.ts': 'it is the codec',
  'api/client/exec-plugin.ts': 'a credential has no numbers',
  'api/client/http-client.ts':
    'clients over the network compute with numbers as doubles, and write back objects whose numbers are smaller',
  'api/client/response-status.ts': 'a Status has small numbers',
  'api/meta/quote.ts': 'it quotes texts',
  'api/schema/resources.ts': 'a file of this project',
  'api/schema/table.ts': 'a file of this project',
  'cli/backup/file.ts': 'a file that the command wrote',
  'cli/commands/explain-eviction.ts': 'a report that is printed',
  'api/component/logging.ts': 'log lines; large integers are written as texts',
  'api/meta/field-error.ts': 'a value in a message',
  'controlplane/registry/aggregation/backend-openapi.ts': 'OpenAPI documents of aggregated servers, and not objects',
  'controlplane/security/authentication/jwt.ts': 'the numbers of a token are points in time',
  'controlplane/security/authentication/oidc.ts': 'metadata and keys of an issuer have no numbers',
  'controlplane/security/authentication/webhook-token.ts': 'a TokenReview has no numbers',
  'controlplane/security/authorization/abac.ts': 'a policy has no numbers',
  'controlplane/security/authorization/webhook.ts': 'a SubjectAccessReview has no numbers',
  'controlplane/model/agent-request.ts': 'measurements are doubles',
  'api/schema/spec-diff.ts': 'a message that shows a difference',
  'controlplane/storage/cached-object.ts': 'labels are texts',
};

test('JSON of objects is decoded and encoded by the codec, which keeps integers beyond 2^53', () => {
  const lossy = sources
    .filter(({ path }) => /^(api|controlplane|cli)\//.test(path))
    .filter(({ text }) =>
      text.split('\n').some((line) => /\bJSON\.(parse|stringify)\b/.test(line) && !/^\s*(\*|\/\/|\/\*)/.test(line)),
    )
    .map(({ path }) => path);
  assert.deepEqual(lossy, Object.keys(LOSSY_JSON).toSorted());
});

/** Files of agents with `${JSON.stringify(` in a text, and what they write with it. Texts are quoted by `quoteText`. */
const WRITTEN_JSON: Readonly<Record<string, string>> = {
  'agent/host/host-record.ts': 'a file',
  'agent/network/serviceproxy/health-check-ports.ts': 'a response',
  'agent/options/config/config-file.ts': 'a value of any type in a message',
  'agent/runtime/images/imported-images.ts': 'a file',
  'agent/sources/pod-identity.ts': 'a value of any type in a message',
  'agent/volumes/csi/csi-source.ts': 'a list in a message',
};

/** Agents parse and write JSON themselves: their client computes with doubles, and their own files have small numbers. */
test('texts in messages of agents are quoted in one way', () => {
  const written = sources.filter(({ path, text }) => path.startsWith('agent/') && text.includes('${JSON.stringify('));
  assert.deepEqual(written.map(({ path }) => path).toSorted(), Object.keys(WRITTEN_JSON));
});

test('no file passes on what another file exports, so that each name has one import path', () => {
  const passing = sources.filter(
    ({ text }) => text.matchAll(PASSED_ON).next().done !== true || /^export \*/m.test(text),
  );
  assert.deepEqual(
    passing.map(({ path }) => path),
    [],
  );
});

test('there are no barrel files, and no folder of odds and ends', () => {
  const bad = sources
    .map(({ path }) => path)
    .filter(
      (path) =>
        /(^|\/)(index|utils?|helpers?|common|misc)\.ts$/.test(path) || /\/(utils?|helpers?|common|misc)\//.test(path),
    );
  assert.deepEqual(bad, []);
});

/** Files of the agent that use `node:fs` where containers, plugins or pods with host paths may write, and why they may. */
const BARE_FILE_ACCESS: Readonly<Record<string, string>> = {
  'agent/volumes/csi/csi-volumes.ts': 'creates the folders that drivers publish to, before anything is mounted there',
  'agent/volumes/csi/layout.ts':
    'writes and removes in folders of the agent; what it reads goes through files/beneath.ts',
  'agent/runtime/kuberuntime/container-config.ts': 'creates the folder of termination logs, which no container mounts',
  'agent/runtime/kuberuntime/container-starter.ts': 'creates folders of logs and links to them by name',
  'agent/runtime/kuberuntime/container-gc.ts':
    'lists the folders of logs and removes dead links, which it does not follow',
  'agent/runtime/kuberuntime/dns.ts': 'reads the resolver configuration of the host',
  'agent/runtime/kuberuntime/etc-hosts.ts': 'reads the hosts file of the host',
  'agent/runtime/logs/log-reader.ts': 'watches the folder of a log; the file is opened by log-files.ts',
  'agent/volumes/empty-dir.ts': 'creates the volume and its marker in folders of the agent, before a container has it',
  'agent/volumes/exclusive-volumes.ts': 'creates and lists directories of pods, which no container mounts',
  'agent/volumes/host-path.ts': 'checks and creates what the pod names on the host, with the rights of the agent',
  'agent/volumes/local-volumes.ts': 'creates the root of the volumes, which no container mounts',
  'agent/volumes/ownership.ts': 'changes owners and modes through descriptors of files/beneath.ts',
  'agent/volumes/plugins/plugin-manager.ts': 'watches the folder in which plugins put their sockets',
  'agent/volumes/pod-mounts.ts': 'removes mount points in folders of the agent',
  'agent/volumes/subpath.ts':
    'creates mount points in folders of the agent; the volume itself goes through files/beneath.ts',
  'agent/volumes/volume-manager.ts': 'creates and lists the directories of pods, which no container mounts',
  'agent/volumes/volume-set-up.ts': 'creates the directories of volumes in folders of the agent',
};

test('the agent reaches what containers can write only through files/beneath.ts', () => {
  const bare = sources
    .filter(({ path }) => /^agent\/(volumes|runtime\/logs|runtime\/kuberuntime)\//.test(path))
    .filter(({ text }) => {
      const imported = [...text.matchAll(/^import\s+\{([^}]*)\}\s+from 'node:fs(?:\/promises)?';/gm)];
      const names = imported.flatMap(([, list = '']) => list.split(',').map((name) => name.trim()));
      return names.some((name) => name !== '' && name !== 'constants' && !name.startsWith('type '));
    })
    .map(({ path }) => path);
  assert.deepEqual(bare, Object.keys(BARE_FILE_ACCESS).toSorted());
});

/** Files that rename without `replaceFile` and `moveFile`: why the rename survives a power failure, or need not. */
const RENAMING = new Map([
  ['api/machinery/replace-file.ts', 'it is the primitive'],
  [
    'agent/base/files/beneath.ts',
    'it renames by descriptors; its callers sync what has to last, or write it again at a start',
  ],
  ['cli/backup/file.ts', 'the name is that of a scratch file'],
  ['cli/commands/backup.ts', 'the name is that of a scratch file'],
  ['cli/host/exchange-data.ts', 'it syncs the folders once for many names, behind the mark of an unfinished restore'],
  ['controlplane/server/audit/log-sink.ts', 'a log whose rotation is lost is rotated again'],
]);

test('files are renamed durably, by replaceFile and moveFile, except where a reason is given', () => {
  const renames = /^import\s+\{[^}]*\brename(Sync)?\b[^}]*\}\s+from\s+'node:fs(\/promises)?';/m;
  const found = sources.filter(({ path, text }) => !path.startsWith('scripts/') && renames.test(text));
  assert.deepEqual(found.map(({ path }) => path).toSorted(), [...RENAMING.keys()].toSorted());
});

/** The maximum width of comments, which are read beside the code in narrow windows. Only data and messages may be longer. */
const COMMENT_COLUMNS = 128;

test('no line of a comment is longer than 128 columns', () => {
  const files = globSync('{api,agent,controlplane,cli,scripts,test}/**/*.ts', { cwd: ROOT });
  const long = files.flatMap((path) =>
    readFileSync(join(ROOT, path), 'utf8')
      .split('\n')
      .flatMap((line, index) =>
        line.length > COMMENT_COLUMNS && /^\s*(\*|\/\/|\/\*)|\s\/\/ /.test(line) ? [`${path}:${index + 1}`] : [],
      ),
  );
  assert.deepEqual(long, []);
});

/** The first words of documentation that gives a reason, or part of a thing, before it names the thing. */
const WITHOUT_A_THING = /^(Because|Since|So that|Otherwise|Those|Such as|As in|Of|Like|Its|Their|Neither|Nor)\b/;

test('the documentation of a declaration begins with what it is or does, and not with a reason', () => {
  const files = globSync('{api,agent,controlplane,cli,scripts,test}/**/*.ts', { cwd: ROOT });
  const wrong = files.flatMap((path) => {
    const lines = readFileSync(join(ROOT, path), 'utf8').split('\n');
    return lines.flatMap((line, index) => {
      if (!/^\s*\/\*\*/.test(line)) return [];
      const text = `${line.replace(/^\s*\/\*\*\s*/, '')} ${(lines[index + 1] ?? '').replace(/^\s*\*\s*/, '')}`.trim();
      return WITHOUT_A_THING.test(text) ? [`${path}:${index + 1}: ${text.slice(0, 60)}`] : [];
    });
  });
  assert.deepEqual(wrong, []);
});

/** Rules of the linter that are off, and why. The key of a rule that is off in tests alone begins with `test/**`. */
const LINT_EXCEPTIONS: ReadonlyMap<string, string> = new Map([
  [
    'typescript/await-thenable',
    'what small inputs compute at once, large ones compute in turns: the callers await both',
  ],
  ['typescript/no-base-to-string', 'values of decoded JSON are `unknown`, and their texts are made for messages'],
  ['typescript/no-misused-spread', 'a text is spread into code points, as Go counts runes'],
  ['typescript/no-useless-default-assignment', 'types of packages state members that are missing at run time'],
  ['typescript/no-redundant-type-constituents', '`keyof T & string` says which members a text names'],
  [
    'typescript/require-array-sort-compare',
    'lists of texts are sorted by their code units, which is the default order',
  ],
  ['typescript/restrict-template-expressions', 'queries (`URLSearchParams`) have a text of their own'],
  ['typescript/unbound-method', 'members that are functions without `this` are taken out of their objects'],
  ['unicorn/no-useless-spread', 'optional members are spread, `{ ...(is ? { a } : {}) }`, also beside constant ones'],
  ['promise/no-callback-in-promise', 'callbacks of packages are called when a promise has settled'],
  ['test/** typescript/no-floating-promises', '`node:test` awaits what `test` returns'],
  ['test/** typescript/no-misused-promises', 'the same, for hooks'],
]);

test('a rule of the linter is off for a reason, and so is a line that breaks one', () => {
  interface Rules {
    readonly rules: Readonly<Record<string, unknown>>;
  }
  const configuration: Rules & { readonly overrides: readonly (Rules & { readonly files: readonly string[] })[] } =
    JSON.parse(readFileSync(join(ROOT, '.oxlintrc.json'), 'utf8'));
  const off = ({ rules }: Rules): string[] => Object.keys(rules).filter((rule) => rules[rule] === 'off');
  const found = [
    ...off(configuration),
    ...configuration.overrides.flatMap((one) => off(one).map((rule) => `${one.files.join(',')} ${rule}`)),
  ];
  assert.deepEqual(found.toSorted(), [...LINT_EXCEPTIONS.keys()].toSorted());
  const silent = sources.flatMap(({ path, text }) =>
    text
      .split('\n')
      .filter((line) => /lint-disable/.test(line) && !/ -- \w/.test(line))
      .map((line) => `${path}: ${line.trim()}`),
  );
  assert.deepEqual(silent, []);
});

/** A finding of the linter, with the members that are used here. */
interface Finding {
  readonly filename: string;
  readonly code: string;
  readonly message: string;
}

/** Files with functions that have more than five parameters, and why they may. */
const MANY_PARAMETERS: ReadonlyMap<string, string> = new Map([
  ['api/cel/lexer.ts', 'a replacing function gets each group of the pattern as a parameter'],
]);

/** `test/size-limits.json` has the numbers. */
test('no file is over 400 lines, and no function over 70 or with more than five parameters', () => {
  const folders = [...new Set(sources.map(({ path }) => folderOf(path)))];
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['node_modules/.bin/oxlint', '-c', 'test/size-limits.json', '--format', 'json', ...folders],
    { cwd: ROOT, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
  );
  assert.ok(stdout.startsWith('{'), stderr);
  const report: { readonly diagnostics: readonly Finding[]; readonly number_of_files: number } = JSON.parse(stdout);
  assert.equal(report.number_of_files, sources.length);
  const crowded = report.diagnostics.filter(({ code }) => code === 'eslint(max-params)');
  const long = report.diagnostics
    .filter((finding) => !crowded.includes(finding))
    .map(({ filename, code, message }) =>
      code === 'eslint(max-lines)' ? filename : `${filename}: ${/`([^`]+)`/.exec(message)?.[1] ?? 'anonymous'}`,
    );
  assert.deepEqual(long, []);
  const files = new Set(crowded.map(({ filename }) => filename));
  assert.deepEqual([...files].toSorted(), [...MANY_PARAMETERS.keys()].toSorted());
});
