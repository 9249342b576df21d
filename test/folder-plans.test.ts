/**
 * Counts what `docs/architecture.md` says of the two plans of the folders: districts, which the sides have, and one line of
 * all rooms. Each walk names the files that a reader opens one after the other.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { districtOf, districtsOf, FLOORS, ROOT, roomOf } from './source-files.ts';

type Side = 'agent' | 'controlplane';

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
      'security/authentication/client-certificate.ts',
      'server/filters/audit.ts',
      'server/audit/audit.ts',
      'server/filters/priority-and-fairness.ts',
      'server/filters/authorization.ts',
      'security/authorization/union.ts',
      'security/authorization/rbac.ts',
      'server/router.ts',
      'model/rest.ts',
      'server/verbs/create.ts',
      'server/body.ts',
      'registry/resource-rest.ts',
      'registry/store-write.ts',
      'registry/write-admission.ts',
      'security/admission/chain.ts',
      'security/admission/plugins.ts',
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
      'start/build-audit.ts',
      'server/audit/policy.ts',
      'server/audit/audit.ts',
      'server/filters/audit.ts',
    ],
  },
];

/** Returns the number of different places of a walk, and how often it goes from one place to another. */
function steps(places: readonly string[]): string {
  const moves = places.filter((place, at) => at > 0 && place !== places[at - 1]).length;
  return `${new Set(places).size}, ${moves} moves`;
}

test('the files of the walks exist', () => {
  const missing = WALKS.flatMap(({ side, files }) => files.map((file) => join(side, file))).filter(
    (path) => !existsSync(join(ROOT, path)),
  );
  assert.deepEqual(missing, []);
});

test('docs/architecture.md compares the plans with the counted numbers', () => {
  const [, table = ''] =
    /\| walk \| districts \| rooms in one line \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)/.exec(
      readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8'),
    ) ?? [];
  const rows = WALKS.map(({ name, side, files }) => {
    const paths = files.map((file) => join(side, file));
    const [districts, rooms] = [districtOf, roomOf].map((place) => steps(paths.map((path) => place(path) ?? 'root')));
    return `| ${name} | ${districts} | ${rooms} |`;
  });
  const all = (side: Side): string => `${districtsOf(side).length} | ${FLOORS[side]?.length}`;
  assert.deepEqual(table.trimEnd().split('\n'), [
    ...rows,
    `| all of the agent | ${all('agent')} |`,
    `| all of the control plane | ${all('controlplane')} |`,
  ]);
});
