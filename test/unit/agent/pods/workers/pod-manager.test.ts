import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { PodManager } from '../../../../../agent/pods/workers/pod-manager.ts';

const podOf = (uid: string, annotation: string): Pod =>
  ({
    metadata: { name: 'p', namespace: 'ns', uid, annotations: { [`kubernetes.io/config.${annotation}`]: 'file' } },
    spec: { containers: [] },
  }) as unknown as Pod;

describe('the mirror pod of a static pod', () => {
  it('stays its own after it was removed, until another pod of its name has come', () => {
    const manager = new PodManager();
    const [old, next, mirror] = [podOf('old', 'source'), podOf('next', 'source'), podOf('mirror', 'mirror')];
    manager.set(old);
    manager.set(mirror);
    manager.remove(old);
    assert.equal(manager.mirrorOf(old), mirror);
    manager.set(next);
    assert.equal(manager.mirrorOf(old), undefined);
    assert.equal(manager.mirrorOf(next), mirror);
  });
});
