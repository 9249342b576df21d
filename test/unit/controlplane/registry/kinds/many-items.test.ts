/** Objects with as many items or keys as fit are decoded and validated in time that grows with their number. */
import { test } from 'node:test';
import { coreObjectKinds } from '../../../../../controlplane/registry/kinds/core/core-objects.ts';
import { nodeKinds } from '../../../../../controlplane/registry/kinds/node/node.ts';
import { storageKinds } from '../../../../../controlplane/registry/kinds/storage/storage.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';
import { type Draft, rulesOf } from './strategy-fixture.ts';

const numbered = <T>(size: number, make: (index: number) => T): T[] =>
  Array.from({ length: size }, (_item, index) => make(index));
const expression = (index: number): object => ({ key: 'k', values: [`v${index}`] });

const secrets = rulesOf(coreObjectKinds, '', 'secrets');
const runtimeClasses = rulesOf(nodeKinds, 'node.k8s.io', 'runtimeclasses');
const classes = rulesOf(storageKinds, 'storage.k8s.io', 'storageclasses');

const MANY: Readonly<Record<string, readonly [size: number, create: (size: number) => unknown]>> = {
  'a secret of texts': [
    8192,
    (size) => secrets.create({ stringData: Object.fromEntries(numbered(size, (index) => [`k${index}`, 'v'])) }),
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
