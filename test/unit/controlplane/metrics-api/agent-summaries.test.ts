import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseSummary } from '../../../../controlplane/metrics-api/agent-summaries.ts';

const usage = (nanoCores: number | undefined): object => ({
  cpu: { time: '2026-01-02T03:04:05Z', ...(nanoCores === undefined ? {} : { usageNanoCores: nanoCores }) },
  memory: { workingSetBytes: 4096 },
});

describe("an agent's summary", () => {
  it('gives the usage of the node, and of each pod by its uid', () => {
    const summary = parseSummary({
      node: usage(5),
      pods: [{ podRef: { uid: 'u' }, containers: [{ name: 'main', ...usage(7) }] }],
    });
    const figures = { time: '2026-01-02T03:04:05Z', workingSetBytes: 4096 };
    assert.deepEqual(summary.node, { ...figures, nanoCores: 5 });
    assert.deepEqual(summary.pods.get('u'), { containers: [{ name: 'main', ...figures, nanoCores: 7 }] });
  });

  it('gives none of a pod while one of its containers has no rate yet', () => {
    const { pods } = parseSummary({
      node: usage(5),
      pods: [
        {
          podRef: { uid: 'u' },
          containers: [
            { name: 'old', ...usage(7) },
            { name: 'new', ...usage(undefined) },
          ],
        },
      ],
    });
    assert.equal(pods.size, 0);
  });

  it('may lack everything', () => assert.deepEqual(parseSummary({}), { node: undefined, pods: new Map() }));
});
