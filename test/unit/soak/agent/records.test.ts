/** The checks of an agent's soak test find each kind of violation by an agent, and none in correct records. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type ContainerRecord,
  judgeContainer,
  judgeOrder,
  parseMarks,
  PodHistory,
  type Role,
  type SeenPod,
} from '../../../soak/agent/records.ts';

const record = (marks: string, role: Role = 'forever', container = 'main'): ContainerRecord => ({
  podUid: 'u',
  container,
  role,
  marks: parseMarks(marks),
});

describe('the marks of a container', () => {
  for (const [what, role, marks] of [
    ['a start', 'forever', 'S 1 a\n'],
    ['restarts after exits, and an end', 'forever', 'S 1 a\nX 2 a\nS 3 b\nA 4 b\nX 5 b\nS 6 c\nT 7 c\n'],
    ['one run', 'once', 'S 1 a\nX 2 a\n'],
    ['a start that the runtime took back', 'forever', 'S 1 a\nA 2 a\nS 4 b\n'],
    ['a start that the runtime took back, and one run', 'once', 'S 1 a\nS 4 b\nX 5 b\n'],
    ['a line that is being written', 'forever', 'S 1 a\nX 2 a\nS 3'],
  ] as const)
    it(`are right: ${what}`, () => assert.deepEqual(judgeContainer(record(marks, role)), []));

  for (const [what, role, marks, pattern] of [
    ['two processes at one time', 'forever', 'S 1 a\nS 2 b\nA 3 a\nA 3 b\n', /at one time/],
    ['a second start without an exit', 'forever', 'S 1 a\nA 9 a\nS 10 b\n', /without an exit/],
    ['a start after SIGTERM', 'forever', 'S 1 a\nT 2 a\nS 3 b\n', /after it was stopped/],
    ['a start after SIGTERM and an exit', 'forever', 'S 1 a\nX 2 a\nS 3 b\nT 4 b\nS 5 c\n', /after it was stopped/],
    ['a second run of what runs once', 'once', 'S 1 a\nX 2 a\nS 3 b\nX 4 b\n', /ran 2 times/],
    ['a second run of an init container', 'init', 'S 1 a\nX 2 a\nS 3 b\nX 4 b\n', /ran 2 times/],
    ['an exit without a start', 'forever', 'X 1 a\n', /without a start/],
  ] as const)
    it(`are wrong: ${what}`, () => {
      const found = judgeContainer(record(marks, role));
      assert.equal(found.length, 1, found.join('\n'));
      assert.match(found[0] ?? '', pattern);
    });

  it('are wrong where another container started before an init container exited', () => {
    const init = record('S 1 a\nX 2 a\n', 'init', 'prepare');
    assert.deepEqual(judgeOrder([init, record('S 3 b\n')]), []);
    assert.equal(judgeOrder([init, record('S 1.5 b\n')]).length, 1);
    assert.equal(judgeOrder([record('S 1 a\n', 'init', 'prepare'), record('S 3 b\n')]).length, 1);
  });
});

describe('the history of a pod', () => {
  const seen = (phase: string, restarts: number, more: Partial<SeenPod> = {}): SeenPod => ({
    type: 'MODIFIED',
    name: 'p',
    uid: 'u',
    phase,
    restarts: new Map([['main', restarts]]),
    ...more,
  });
  const judged = (...pods: readonly SeenPod[]): number => {
    const history = new PodHistory();
    for (const pod of pods) history.see(pod);
    return history.violations.length;
  };

  it('goes forward', () => {
    assert.equal(judged(seen('Pending', 0), seen('Running', 0), seen('Running', 1), seen('Succeeded', 1)), 0);
    assert.equal(judged(seen('Running', 2), seen('Running', 0, { uid: 'of another pod' })), 0);
  });

  it('never goes back', () => {
    assert.equal(judged(seen('Running', 0), seen('Pending', 0)), 1);
    assert.equal(judged(seen('Succeeded', 0), seen('Running', 0)), 1);
    assert.equal(judged(seen('Failed', 0), seen('Succeeded', 0)), 1);
    assert.equal(judged(seen('Running', 3), seen('Running', 2)), 1);
    assert.equal(judged(seen('Running', 0, { type: 'DELETED' }), seen('Running', 0)), 1);
  });
});
