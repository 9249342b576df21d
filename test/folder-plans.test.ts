/**
 * Counts what `docs/architecture.md` says of the two plans of the folders: the line that the sides have, and districts by
 * subject. Each walk names the files that a reader opens one after the other.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FLOORS, ROOT, sources } from './source-files.ts';

const SIDES = ['agent', 'controlplane'] as const;
type Side = (typeof SIDES)[number];

/** The districts of the other plan with the folders that they group. `root` is the folder of the side itself. */
const DISTRICTS: Readonly<Record<Side, Readonly<Record<string, readonly string[]>>>> = {
  agent: {
    root: ['assembly'],
    options: ['options'],
    server: ['server'],
    node: ['node', 'host'],
    resources: ['resources', 'host/cgroups'],
    pods: ['pods'],
    volumes: ['volumes'],
    sources: ['sources'],
    runtime: ['runtime'],
    network: ['network'],
    base: ['files', 'model', 'protocols'],
  },
  controlplane: {
    root: ['start'],
    options: ['options'],
    server: ['server'],
    security: ['audit', 'encryption', 'reviews', 'admission', 'authorization', 'authentication', 'pki'],
    registry: ['registry', 'custom-resources', 'aggregation'],
    storage: ['storage', 'etcd', 'backup', 'standby'],
    controllers: ['controllers', 'metrics-api', 'manifests', 'bootstrap'],
    scheduler: ['scheduler'],
    model: ['model', 'readers'],
  },
};

interface Walk {
  /** The row of the table. */
  readonly name: string;
  readonly side: Side;
  /** The files below the folder of the side, in the order in which they are read. */
  readonly files: readonly string[];
}

const WALKS: readonly Walk[] = [
  {
    name: 'a pod, from the API to its containers and back to its status',
    side: 'agent',
    files: [
      'sources/api-source.ts',
      'sources/pod-config.ts',
      'pods/sync-loop.ts',
      'resources/managers/resource-managers.ts',
      'pods/workers/pod-admission.ts',
      'pods/workers/pod-workers.ts',
      'pods/workers/pod-sync.ts',
      'runtime/kuberuntime/runtime-status.ts',
      'host/cgroups/pod-cgroups.ts',
      'volumes/volume-manager.ts',
      'volumes/volume-set-up.ts',
      'runtime/kuberuntime/kube-runtime.ts',
      'runtime/kuberuntime/pod-actions.ts',
      'assembly/pod-addresses.ts',
      'network/podaddresses/address-binder.ts',
      'assembly/network-policies.ts',
      'network/policy/policy-enforcer.ts',
      'runtime/kuberuntime/container-starter.ts',
      'runtime/images/image-manager.ts',
      'runtime/runtime.ts',
      'runtime/cri/cri-runtime.ts',
      'runtime/pleg/pleg.ts',
      'pods/prober/probe-manager.ts',
      'runtime/kuberuntime/api-status.ts',
      'pods/status/status-manager.ts',
    ],
  },
  {
    name: 'a request that creates a pod',
    side: 'controlplane',
    files: [
      'server/listener.ts',
      'server/handler.ts',
      'server/filters/request-info.ts',
      'server/filters/authentication.ts',
      'authentication/client-certificate.ts',
      'server/filters/audit.ts',
      'audit/audit.ts',
      'server/filters/priority-and-fairness.ts',
      'server/filters/authorization.ts',
      'authorization/union.ts',
      'authorization/rbac.ts',
      'server/router.ts',
      'model/rest.ts',
      'server/verbs/create.ts',
      'server/body.ts',
      'registry/resource-rest.ts',
      'registry/store-write.ts',
      'registry/write-admission.ts',
      'admission/chain.ts',
      'admission/plugins.ts',
      'registry/kinds/core/pods.ts',
      'storage/revision-log.ts',
      'storage/commit-pipeline.ts',
      'storage/sqlite/sqlite-storage.ts',
      'storage/watch-cache.ts',
      'server/response.ts',
    ],
  },
  {
    name: '`--eviction-hard`',
    side: 'agent',
    files: [
      'options/eviction.ts',
      'options/config/effective-options.ts',
      'assembly/node-reservations.ts',
      'assembly/protection.ts',
      'resources/eviction/thresholds.ts',
      'resources/eviction/eviction-manager.ts',
    ],
  },
  {
    name: '`--audit-policy-file`',
    side: 'controlplane',
    files: [
      'options/audit.ts',
      'start/serve.ts',
      'audit/build.ts',
      'audit/policy.ts',
      'audit/audit.ts',
      'server/filters/audit.ts',
    ],
  },
];

/** Returns the folder of a file below its side: the folder of the line, which `root` replaces for files outside of one. */
function folderOf(file: string): string {
  const [folder = '', ...rest] = file.split('/');
  return rest.length === 0 ? 'root' : folder;
}

/** Returns the district of a file below its side. The longest folder that contains it decides. */
function districtOf(side: Side, file: string): string {
  const owners = Object.entries(DISTRICTS[side]).flatMap(([district, folders]) =>
    folders.filter((folder) => file.startsWith(`${folder}/`)).map((folder) => ({ district, folder })),
  );
  return owners.toSorted((a, b) => b.folder.length - a.folder.length)[0]?.district ?? 'root';
}

/** Returns the number of different places of a walk, and how often it goes from one place to another. */
function steps(places: readonly string[]): string {
  const moves = places.filter((place, at) => at > 0 && place !== places[at - 1]).length;
  return `${new Set(places).size}, ${moves} moves`;
}

/**
 * Returns the number of imports from a lower place to a higher one in the best order of the places: that with the fewest of
 * them. The root is above all. `weights[from][to]` counts imports.
 */
function upwardImports(weights: readonly (readonly number[])[]): number {
  const count = weights.length;
  // The fewest imports that run up from the places of a set, which are the lowest ones.
  const fewest = Array.from({ length: 2 ** count }, () => Infinity);
  fewest[0] = 0;
  for (let set = 0; set < fewest.length; set += 1)
    for (const [next, imports] of weights.entries()) {
      if ((set & (1 << next)) !== 0) continue;
      const up = imports.reduce((sum, n, to) => ((set | (1 << next)) & (1 << to) ? sum : sum + n), 0);
      const union = set | (1 << next);
      fewest[union] = Math.min(fewest[union] ?? Infinity, (fewest[set] ?? Infinity) + up);
    }
  return fewest.at(-1) ?? 0;
}

/** Bounds that hold while single imports come and go. */
const FEWEST_UPWARD: Readonly<Record<Side, number>> = { agent: 5, controlplane: 20 };

/** Returns how many imports run up between the districts of a side, in the best order. */
function upwardOf(side: Side): number {
  const places = Object.keys(DISTRICTS[side]).filter((district) => district !== 'root');
  const weights = places.map(() => places.map(() => 0));
  const below = (path: string): string => path.slice(side.length + 1);
  for (const { path, imports, typeImports } of sources.filter((source) => source.path.startsWith(`${side}/`)))
    for (const target of [...imports, ...typeImports].filter((each) => each.startsWith(`${side}/`))) {
      const row = weights[places.indexOf(districtOf(side, below(path)))];
      const to = places.indexOf(districtOf(side, below(target)));
      if (row?.[to] !== undefined) row[to] += 1;
    }
  return upwardImports(weights);
}

test('each folder of a side is in one district', () => {
  for (const side of SIDES) {
    const grouped = Object.values(DISTRICTS[side]).flat();
    assert.deepEqual(grouped.filter((folder) => !folder.includes('/')).toSorted(), FLOORS[side]?.toSorted());
  }
});

test('the files of the walks exist', () => {
  const missing = WALKS.flatMap(({ side, files }) => files.map((file) => join(side, file))).filter(
    (path) => !existsSync(join(ROOT, path)),
  );
  assert.deepEqual(missing, []);
});

test('docs/architecture.md compares the plans with the counted numbers', () => {
  const [, table = ''] =
    /\| walk \| folders of the line \| districts \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)/.exec(
      readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8'),
    ) ?? [];
  const rows = WALKS.map(
    ({ name, side, files }) =>
      `| ${name} | ${steps(files.map(folderOf))} | ${steps(files.map((file) => districtOf(side, file)))} |`,
  );
  const [agent, controlplane] = SIDES.map((side) => `${Object.keys(DISTRICTS[side]).length}`);
  assert.deepEqual(table.trimEnd().split('\n'), [
    ...rows,
    `| all of the agent | ${FLOORS['agent']?.length} | ${agent} |`,
    `| all of the control plane | ${FLOORS['controlplane']?.length} | ${controlplane} |`,
    `| imports that run back up, agent | 0 | more than ${FEWEST_UPWARD.agent} |`,
    `| imports that run back up, control plane | 3 | more than ${FEWEST_UPWARD.controlplane} |`,
  ]);
  for (const side of SIDES) assert.ok(upwardOf(side) > FEWEST_UPWARD[side], `${side}: ${upwardOf(side)}`);
});
