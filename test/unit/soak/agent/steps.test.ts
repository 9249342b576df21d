/**
 * The names of the steps at which a soak test kills the agent are equal for all pods, and exist only for steps that change
 * something.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isStep, stepName } from '../../../soak/agent/steps.ts';

const UID = '0a1b2c3d-1111-2222-3333-444455556666';

for (const [kind, target, name] of [
  ['POST', `/v1.44/containers/${'ab12'.repeat(16)}/start`, 'POST /v1.44/containers/ID/start'],
  ['POST', '/containers/create?name=x', 'POST /containers/create'],
  ['POST', '/runtime.v1.RuntimeService/RunPodSandbox', 'POST /runtime.v1.RuntimeService/RunPodSandbox'],
  ['PATCH', '/api/v1/namespaces/default/pods/soak-full-12/status', 'PATCH /api/v1/namespaces/default/pods/POD/status'],
  [
    'DELETE',
    '/api/v1/namespaces/default/pods/soak-static-3-soak-docker-77',
    'DELETE /api/v1/namespaces/default/pods/POD',
  ],
  ['mkdir', `/tmp/orchlet-soak-Ab1/root/pods/${UID}/volumes`, 'mkdir /root/pods/UID/volumes'],
  ['rename', '/tmp/orchlet-soak-Ab1/root/last-known/objects/x.json', 'rename /root/last-known/objects/x.json'],
  [
    'rmdir',
    `/sys/fs/cgroup/cpu/soak-docker-77/kubepods/pod${UID}`,
    'rmdir /sys/fs/cgroup/CONTROLLER/NODE/kubepods/podUID',
  ],
  ['run', `umount /tmp/orchlet-soak-Ab1/root/pods/${UID}/volumes/v`, 'run umount /root/pods/UID/volumes/v'],
] as const)
  test(`${name} is a step`, () => {
    assert.equal(stepName(kind, target), name);
    assert.equal(isStep(name), true);
  });

for (const [kind, target] of [
  ['GET', '/api/v1/namespaces/default/pods'],
  ['POST', '/runtime.v1.RuntimeService/ListContainers'],
  ['PUT', '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n'],
  ['open', '/proc/self/oom_score_adj'],
  ['run', 'prlimit --pid 1'],
] as const)
  test(`${kind} ${target} is none`, () => assert.equal(isStep(stepName(kind, target)), false));
