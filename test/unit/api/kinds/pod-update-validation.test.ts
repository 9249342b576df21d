/** Tests updates of pods: the cost of their validation, and immutable fields. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  ephemeralContainerUpdateErrors,
  podStatusUpdateErrors,
  podUpdateErrors,
} from '../../../../api/kinds/pod-update-validation.ts';
import type { Pod } from '../../../../api/kinds/pod-types.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const podWith = (spec: object, status: object = {}): Pod =>
  ({
    metadata: { name: 'p', namespace: 'n' },
    spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never', ...spec },
    status,
  }) as Pod;

const numbered = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_item, index) => make(index));

describe('the tolerations of a pod', () => {
  const text = 'spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds';
  const was = podWith({ tolerations: [{ key: 'a', operator: 'Exists' }] });
  const errorsOf = (tolerations: object[]): string[] =>
    podUpdateErrors(podWith({ tolerations }), was)
      .map(String)
      .filter((error) => error === text);
  test('may be extended, and get another time', () => {
    assert.deepEqual(errorsOf([{ key: 'b' }, { key: 'a', operator: 'Exists', value: '', tolerationSeconds: 5 }]), []);
  });
  test('may not be removed or changed', () => {
    assert.deepEqual(errorsOf([{ key: 'a', operator: 'Exists', effect: 'NoExecute' }]), [text]);
    assert.deepEqual(errorsOf([]), [text]);
  });
  test('are compared in linear time, however many there are', async () => {
    const run = (size: number): unknown => {
      const tolerations = numbered(size, (index) => ({ key: `k${index}`, operator: 'Exists' }));
      const pod = podWith({ tolerations });
      return podUpdateErrors(pod, pod);
    };
    await assertLinearTime(run, { minBytes: 16_384, maxBytes: 16_384, noticeableMs: 250 });
  });
});

describe('the statuses of containers', () => {
  const statuses = (states: object[]): Pod =>
    podWith({}, { containerStatuses: states.map((state, index) => ({ name: `c${index}`, state })) });
  test('do not leave the terminated state where no restart follows', () => {
    const ended = statuses([{ running: {} }, { terminated: { exitCode: 0 } }]);
    const errors = podStatusUpdateErrors(statuses([{ running: {} }, { running: {} }]), ended).map(String);
    assert.deepEqual(errors, [
      'status.containerStatuses[1].state: Forbidden: may not be transitioned to non-terminated state',
    ]);
  });
  test('are compared in linear time, however many there are', async () => {
    const run = (size: number): unknown => {
      const pod = statuses(numbered(size, () => ({ terminated: { exitCode: 0 } })));
      return podStatusUpdateErrors(pod, pod);
    };
    await assertLinearTime(run, { minBytes: 16_384, maxBytes: 16_384, noticeableMs: 250 });
  });
});

describe('a refused change of a pod', () => {
  const last = (errors: readonly unknown[]): string => String(errors.at(-1));
  const shown = (text: string): string => text.slice(text.indexOf('\n'));
  test('is shown line by line in the internal form', () => {
    const pod = podWith({ hostNetwork: true, serviceAccount: 'a', serviceAccountName: 'a' });
    assert.equal(
      shown(last(podUpdateErrors(pod, podWith({ serviceAccount: 'a', serviceAccountName: 'a' })))),
      `
@@ -44,7 +44,7 @@
  "AutomountServiceAccountToken": null,
  "NodeName": "",
  "SecurityContext": {
-  "HostNetwork": false,
+  "HostNetwork": true,
   "HostPID": false,
   "HostIPC": false,
   "ShareProcessNamespace": null,
`,
    );
  });
  test('is shown for an ephemeral container alone', () => {
    const using = (image: string): Pod => podWith({ ephemeralContainers: [{ name: 'e', image }] });
    assert.equal(
      shown(last(ephemeralContainerUpdateErrors(using('b'), using('a')))),
      `
@@ -1,6 +1,6 @@
 {
  "Name": "e",
- "Image": "a",
+ "Image": "b",
  "Command": null,
  "Args": null,
  "WorkingDir": "",
`,
    );
  });
  test('takes time that grows with its lines', async () => {
    const run = (size: number): void => {
      const args = (text: string): Pod =>
        podWith({ containers: [{ name: 'c', image: 'i', args: numbered(size, (index) => `${text}${index}`) }] });
      const text = last(podUpdateErrors(args('b'), args('a')));
      assert.ok(text.includes(`"a${size - 1}"`) && text.includes(`"b${size - 1}"`));
    };
    await assertLinearTime(run, { minBytes: 1_000, maxBytes: 20_000 });
  });
});
