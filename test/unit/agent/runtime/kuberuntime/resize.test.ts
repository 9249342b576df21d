/** Tests which changes of resources restart a running container, and which are refused. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import { containerAnnotations } from '../../../../../agent/runtime/kuberuntime/container-config.ts';
import {
  loweredMemory,
  memoryProblem,
  REQUESTS_ANNOTATION,
  resizeOf,
} from '../../../../../agent/runtime/kuberuntime/resize.ts';
import { linuxResources } from '../../../../../agent/runtime/kuberuntime/resources.ts';
import type { ContainerStatus } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerId } from '../../../../../agent/runtime/runtime-identity.ts';

const facts = { memoryCapacityBytes: 2 ** 34, cpuQuota: true, cpuPeriodUs: 100_000 };
const limits = { cpu: '30m', memory: '45Mi' };

/** Returns a pod with one container, which a resize of `restarting` restarts. */
function podOf(requests: object, restarting?: 'cpu' | 'memory'): { pod: Pod; container: Container } {
  const resizePolicy = restarting && [{ resourceName: restarting, restartPolicy: 'RestartContainer' }];
  const container = { name: 'c', resources: { requests, limits }, resizePolicy } as unknown as Container;
  return { pod: { metadata: { name: 'p', uid: 'u' }, spec: { containers: [container] } } as unknown as Pod, container };
}

/** Returns what the runtime reports of the container after its start. */
function started({ pod, container }: ReturnType<typeof podOf>): ContainerStatus {
  const annotations = containerAnnotations({ pod, container, attempt: 0 });
  return { state: 'running', annotations, resources: linuxResources(pod, container, facts) } as ContainerStatus;
}

describe('a resize', () => {
  const before = { cpu: '1m', memory: '35Mi' };
  for (const [what, after, policy, expected] of [
    ['of nothing keeps the container', before, 'memory', 'none'],
    ['to the same request in another notation keeps it', { cpu: '0.001', memory: '35840Ki' }, 'memory', 'none'],
    ['of the memory request restarts it by policy', { cpu: '1m', memory: '40Mi' }, 'memory', 'restart'],
    ['of the memory request without the policy keeps it', { cpu: '1m', memory: '40Mi' }, undefined, 'none'],
    ['of a CPU request with the same shares restarts it by policy', { cpu: '2m', memory: '35Mi' }, 'cpu', 'restart'],
    ['of a CPU request is applied in place without the policy', { cpu: '25m', memory: '35Mi' }, 'memory', 'in-place'],
  ] as const)
    it(what, () => {
      const resized = podOf(after, policy);
      assert.equal(resizeOf(resized.pod, resized.container, started(podOf(before, policy)), facts), expected);
    });

  it('restarts no container over and over because its image has a label that looks like the annotation', () => {
    const { pod, container } = podOf(before);
    const status = started({ pod, container });
    const annotations = { ...status.annotations, [REQUESTS_ANNOTATION]: 'cpu=7' };
    assert.equal(resizeOf(pod, container, { ...status, annotations }, facts), 'none');
  });

  it('of a container that another agent started compares what the runtime reports', () => {
    const { annotations, ...status } = started(podOf(before, 'memory'));
    const { [REQUESTS_ANNOTATION]: _absent, ...others } = annotations;
    const resized = podOf({ cpu: '1m', memory: '40Mi' }, 'memory');
    assert.equal(resizeOf(resized.pod, resized.container, { ...status, annotations: others }, facts), 'none');
  });

  it('that lowers a memory limit is found', () => {
    const { pod, container } = podOf(before);
    const wanted = linuxResources(pod, container, facts);
    const running = (memoryLimitBytes: number): ContainerStatus =>
      ({ name: 'c', state: 'running', resources: { ...wanted, memoryLimitBytes } }) as ContainerStatus;
    const limit = wanted.memoryLimitBytes;
    assert.equal(loweredMemory(wanted, running(limit * 2)), limit);
    assert.equal(loweredMemory(wanted, running(0)), limit);
    assert.equal(loweredMemory(wanted, running(limit)), undefined);
  });

  it('that lowers memory limits below the usage is refused with the message of the kubelet', () => {
    const stats = (id: string, memoryUsageBytes: number) => ({
      id: id as ContainerId,
      memoryUsageBytes,
      memoryWorkingSetBytes: 1,
    });
    const containers = [{ id: 'a', name: 'main', limitBytes: 40 }];
    assert.equal(
      memoryProblem({ podBytes: 50, containers }, [stats('a', 40), stats('b', 30)]),
      'cannot decrease memory limits: [attempting to set pod memory limit (50) below current usage (70), attempting to set container "main" memory limit (40) below current usage (70)]',
    );
    assert.equal(
      memoryProblem({ podBytes: undefined, containers }, [stats('a', 40)]),
      'cannot decrease memory limits: attempting to set container "main" memory limit (40) below current usage (40)',
    );
    assert.equal(memoryProblem({ podBytes: 40, containers }, [stats('a', 39)]), undefined);
  });
});
