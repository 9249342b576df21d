/** Objects with as many items or keys as fit are decoded and validated in time that grows with their number. */
import { test } from 'node:test';
import { nameIsSubdomain } from '../../../../../api/meta/names.ts';
import type { KubeObject, ObjectMeta } from '../../../../../api/meta/object.ts';
import { validateMetadata } from '../../../../../api/meta/validation.ts';
import { specDiff } from '../../../../../api/schema/spec-diff.ts';
import { coreObjectKinds } from '../../../../../controlplane/registry/kinds/core/core-objects.ts';
import { limitKinds } from '../../../../../controlplane/registry/kinds/core/limits.ts';
import { nodeKinds } from '../../../../../controlplane/registry/kinds/node/node.ts';
import { storageKinds } from '../../../../../controlplane/registry/kinds/storage/storage.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';
import { contextFor, type Draft, rulesOf, strategyOf } from './strategy-fixture.ts';

const numbered = <T>(size: number, make: (index: number) => T): T[] =>
  Array.from({ length: size }, (_item, index) => make(index));
const expression = (index: number): object => ({ key: 'k', values: [`v${index}`] });

const owner = (index: number): object => ({ apiVersion: 'v1', kind: 'Pod', name: `p${index}`, uid: `u${index}` });

// The length of all errors together is limited when they are written, so only their number is checked here.
const quotas = strategyOf(limitKinds, 'resourcequotas');
const quotaErrors = (spec: object): unknown =>
  quotas.validateCreate?.({ metadata: { name: 'q' }, spec } as KubeObject, contextFor('', 'resourcequotas'));
const secrets = rulesOf(coreObjectKinds, '', 'secrets');
const runtimeClasses = rulesOf(nodeKinds, 'node.k8s.io', 'runtimeclasses');
const classes = rulesOf(storageKinds, 'storage.k8s.io', 'storageclasses');

const MANY: Readonly<Record<string, readonly [size: number, create: (size: number) => unknown]>> = {
  'a secret of texts': [
    8192,
    (size) => secrets.create({ stringData: Object.fromEntries(numbered(size, (index) => [`k${index}`, 'v'])) }),
  ],
  'an object whose many owners are all its controller': [
    2048,
    (size) =>
      validateMetadata(
        {
          name: 'n',
          ownerReferences: numbered(size, (index) => ({ ...owner(index), controller: true })),
        } as ObjectMeta,
        { namespaced: false, nameRule: nameIsSubdomain },
      ),
  ],
  'a quota whose scopes do not fit its resources': [
    2048,
    (size) =>
      quotaErrors({
        hard: { services: '1' },
        scopeSelector: { matchExpressions: numbered(size, () => ({ scopeName: 'BestEffort', operator: 'Exists' })) },
      }),
  ],
  'a quota of scopes and resources': [
    4096,
    (size) =>
      quotaErrors({
        hard: Object.fromEntries(numbered(size, (index) => [`count/a${index}.e`, '1'])),
        scopes: numbered(size, () => 'BestEffort'),
      }),
  ],
  'a diff of specs with changes all over': [
    16_384,
    (size) => {
      const old = numbered(size, (index) => (index > size - 200 && index % 10 === 0 ? `old${index}` : `v${index}`));
      return specDiff(
        old,
        numbered(size, (index) => `v${index}`),
      );
    },
  ],
  'a runtime class of tolerations': [
    8192,
    (size) =>
      runtimeClasses.create({
        handler: 'h',
        scheduling: { tolerations: numbered(size, (index) => ({ key: `k${index}`, operator: 'Exists' })) },
      }),
  ],
  'a storage class of topologies': [
    8192,
    (size) =>
      classes.create({
        provisioner: 'p',
        allowedTopologies: numbered(size, (index) => ({ matchLabelExpressions: [expression(index)] })),
      } as Draft),
  ],
  'a storage class of zones': [
    32_768,
    (size) =>
      classes.create({
        provisioner: 'p',
        allowedTopologies: [{ matchLabelExpressions: [{ key: 'k', values: numbered(size, (index) => `v${index}`) }] }],
      } as Draft),
  ],
};

for (const [name, [size, create]] of Object.entries(MANY))
  test(`${name} takes time that grows with their number`, async () => {
    await assertLinearTime(create, { minBytes: size, maxBytes: size, noticeableMs: 100 });
  });
