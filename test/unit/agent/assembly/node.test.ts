/** Tests the features that a node declares. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DECLARED_FEATURES } from '../../../../agent/assembly/node.ts';

test('the node declares the features that a kubelet 1.36 with default gates declares', () =>
  assert.deepEqual(DECLARED_FEATURES, [
    'ExtendWebSocketsToKubelet',
    'InPlacePodLevelResourcesVerticalScaling',
    'InPlacePodVerticalScalingInitContainers',
    'RestartAllContainersOnContainerExits',
  ]));
