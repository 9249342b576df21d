/** Tests the messages of failed hooks, which the status of a container shows, and what metrics count. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Container } from '../../../../../agent/base/model/pod.ts';
import { hookMetrics } from '../../../../../agent/pods/metrics/state-metrics.ts';
import { type Hook, runHook } from '../../../../../agent/runtime/kuberuntime/lifecycle-hooks.ts';
import type { ContainerId } from '../../../../../agent/runtime/runtime-identity.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const target = {
  id: 'id' as ContainerId,
  container: { name: 'c', image: 'i' } as Container,
  pod: 'p_d(u)',
  podIp: '127.0.0.1',
};

function deps(clock: FakeClock, observe?: (event: 'http-fallback' | 'sleep-cut-short') => void) {
  return {
    clock,
    warn: () => undefined,
    observe,
    runtime: {
      execSync: async () => ({
        ...{ exitCode: 9, stdout: Buffer.from('hook\n'), stderr: Buffer.from('no\n'), outputBytes: 8 },
      }),
    },
  };
}

it('a failed command is reported with its exit code and output, as the kubelet does', async () => {
  const hook = { exec: { command: ['sh', '-c', 'exit 9'] } } as Hook;
  await assert.rejects(runHook(hook, target, deps(new FakeClock()), new AbortController().signal), {
    message:
      'Exec lifecycle hook ([sh -c exit 9]) for Container "c" in Pod "p_d(u)" failed - error: ' +
      'command \'sh -c exit 9\' exited with 9: no\n, message: "hook\\nno\\n"',
  });
});

it('a failed request is reported with its path', async () => {
  const hook = { httpGet: { path: '/bye', port: 'missing' } } as unknown as Hook;
  await assert.rejects(
    runHook(hook, target, deps(new FakeClock()), new AbortController().signal),
    /^Error: HTTP lifecycle hook \(\/bye\) for Container "c" in Pod "p_d\(u\)" failed - error: couldn't find port: missing/,
  );
});

it('a pause that ends early is counted', async () => {
  const metrics = new MetricsRegistry();
  const clock = new FakeClock();
  const limit = new AbortController();
  const paused = runHook({ sleep: { seconds: 60 } } as Hook, target, deps(clock, hookMetrics(metrics)), limit.signal);
  const ended = assert.rejects(paused, /over/);
  limit.abort(new Error('over'));
  await ended;
  assert.match(metrics.text(), /^kubelet_sleep_action_terminated_early_total 1$/m);
  assert.match(metrics.text(), /^kubelet_lifecycle_handler_http_fallbacks_total 0$/m);
});
