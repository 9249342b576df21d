import assert from 'node:assert/strict';
import { test } from 'node:test';
import type {
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  VolumeAttributesClass,
} from '../../../../api/kinds/kinds.ts';
import {
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  volumeAttributesClasses,
} from '../../../../api/client/resources.ts';
import {
  runAttributesClassProtection,
  runClaimProtection,
  runVolumeProtection,
} from '../../../../controlplane/controllers/storage/protection.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const claim: PersistentVolumeClaim = { metadata: { name: 'c', namespace: 'n' }, spec: {} };

test('a claim is kept until the pod that uses it is deleted', async () => {
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'n' },
    spec: { nodeName: 'node', containers: [], volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }] },
  };
  const t = controllerTest({
    objects: [
      [persistentVolumeClaims, claim],
      [pods, pod],
    ],
  });
  await t.start(runClaimProtection);
  await t.advance(100);
  assert.deepEqual(t.client.peek(persistentVolumeClaims, 'n', 'c')?.metadata.finalizers, [
    'kubernetes.io/pvc-protection',
  ]);
  await t.client.delete(persistentVolumeClaims, 'n', 'c');
  await t.advance(1000);
  assert.ok(t.client.peek(persistentVolumeClaims, 'n', 'c'));
  await t.client.delete(pods, 'n', 'p', { gracePeriodSeconds: 0 });
  await t.advance(1000);
  assert.equal(t.client.peek(persistentVolumeClaims, 'n', 'c'), undefined);
  await t.stop();
});

test('a volume stays as long as it is bound', async () => {
  const volume: PersistentVolume = { metadata: { name: 'v' }, spec: {}, status: { phase: 'Bound' } };
  const t = controllerTest({ objects: [[persistentVolumes, volume]] });
  await t.start(runVolumeProtection);
  await t.advance(100);
  await t.client.delete(persistentVolumes, '', 'v');
  await t.advance(1000);
  const bound = t.client.peek(persistentVolumes, '', 'v');
  assert.ok(bound);
  await t.client.update(persistentVolumes, { ...bound, status: { phase: 'Released' } }, { subresource: 'status' });
  await t.advance(1000);
  assert.equal(t.client.peek(persistentVolumes, '', 'v'), undefined);
  await t.stop();
});

test('a class of volume attributes stays as long as a claim has it', async () => {
  const gold: VolumeAttributesClass = { metadata: { name: 'gold' }, driverName: 'd' };
  const using = { ...claim, spec: { volumeAttributesClassName: 'gold' } };
  const t = controllerTest({
    objects: [
      [volumeAttributesClasses, gold],
      [persistentVolumeClaims, using],
    ],
  });
  await t.start(runAttributesClassProtection);
  await t.advance(100);
  await t.client.delete(volumeAttributesClasses, '', 'gold');
  await t.advance(1000);
  assert.ok(t.client.peek(volumeAttributesClasses, '', 'gold'));
  await t.client.delete(persistentVolumeClaims, 'n', 'c');
  await t.advance(1000);
  assert.equal(t.client.peek(volumeAttributesClasses, '', 'gold'), undefined);
  await t.stop();
});
