/** The checks of a soak test find each kind of violation by a storage, and none in correct histories. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Operation, type SeenEvent, violations, type WatchSegment } from '../../soak/history.ts';

/** The events of two keys. `a` is created at 11, updated at 12, deleted at 14 and created again at 15; `b` is created at 13. */
const EVENTS: readonly SeenEvent[] = [
  { type: 'ADDED', key: 'a', revision: 11, value: 'a1' },
  { type: 'MODIFIED', key: 'a', revision: 12, value: 'a2' },
  { type: 'ADDED', key: 'b', revision: 13, value: 'b1' },
  { type: 'DELETED', key: 'a', revision: 14, value: 'a2' },
  { type: 'ADDED', key: 'a', revision: 15, value: 'a3' },
];
const segment = (events: readonly SeenEvent[] = EVENTS): WatchSegment => ({
  name: 'watch',
  from: 10,
  through: 20,
  events: [...events],
});
const write = (
  value: string | undefined,
  expected: number | undefined,
  revision: number | undefined,
  [startMs, endMs]: readonly [number, number],
  outcome: 'done' | 'refused' | 'unknown' = 'done',
): Operation => ({ kind: 'write', key: 'a', value, expected, revision, outcome, startMs, endMs });
const read = (revision: number | undefined, value: string, [startMs, endMs]: readonly [number, number]): Operation => ({
  kind: 'read',
  key: 'a',
  found: revision === undefined ? undefined : { revision, value },
  startMs,
  endMs,
});
const listAt = (revision: number, items: readonly (readonly [string, number, string])[], startMs = 0): Operation => ({
  kind: 'list',
  revision,
  items: new Map(items.map(([key, at, value]) => [key, { revision: at, value }])),
  startMs,
  endMs: startMs + 1,
});

const WRITES = [
  write('a1', undefined, 11, [0, 1]),
  write('a2', 11, 12, [2, 3]),
  write(undefined, 12, undefined, [4, 5]),
];

describe('the judgement of a soak', () => {
  it('accepts a deletion in a gap of all watches, and nothing that vanishes without one', () => {
    const [created] = EVENTS.filter(({ revision }) => revision === 11);
    assert(created !== undefined);
    const gap: readonly WatchSegment[] = [
      { name: 'watch', from: 10, through: 12, events: [created] },
      { name: 'watch', from: 18, through: 20, events: [] },
    ];
    const before = [write('a1', undefined, 11, [0, 1]), read(11, 'a1', [2, 3])];
    const deletion = write(undefined, 11, undefined, [4, 5], 'unknown');
    assert.deepEqual(violations([...before, deletion, read(undefined, '', [6, 7])], gap), []);
    assert.match(violations([...before, read(undefined, '', [6, 7])], gap).join(), /nobody deleted it/);
    const whole = [{ name: 'watch', from: 10, through: 20, events: [created] }];
    assert.match(violations([...before, deletion, read(undefined, '', [6, 7])], whole).join(), /nobody deleted it/);
  });

  it('takes a list after a gap in all watches as the new state, and checks the next list against it', () => {
    const gap: readonly WatchSegment[] = [
      { name: 'watch', from: 10, through: 12, events: EVENTS.slice(0, 2) },
      { name: 'watch', from: 15, through: 20, events: [] },
    ];
    const updated = [
      listAt(10, [], 0),
      listAt(16, [['a', 13, 'a3']], 1),
      listAt(17, [['a', 13, 'a3']], 2),
      listAt(18, [['a', 13, 'a3']], 3),
    ];
    assert.deepEqual(violations(updated, gap), []);
    const reappearing = [...updated.slice(0, 3), listAt(18, [['a', 12, 'a2']], 3)];
    assert.match(violations(reappearing, gap).join(), /the list at 18 shows a=a2@12, but it is a3@13/);
  });

  it('does not take a deletion after a gap of all watches for one that ended before', () => {
    const gap: readonly WatchSegment[] = [
      { name: 'watch', from: 10, through: 12, events: EVENTS.slice(0, 2) },
      { name: 'watch', from: 15, through: 20, events: [{ type: 'DELETED', key: 'a', revision: 16, value: 'a3' }] },
    ];
    const operations = [...WRITES, write('a3', undefined, 14, [6, 7]), read(14, 'a3', [8, 9])];
    assert.deepEqual(violations(operations, gap), []);
  });

  it('finds nothing in a correct history', () => {
    const operations = [
      listAt(10, [], -2),
      ...WRITES,
      read(11, 'a1', [1, 2.5]),
      read(undefined, '', [6, 7]),
      write('never', 12, undefined, [8, 9], 'refused'),
      write('a3', undefined, 15, [8, 9]),
      listAt(
        15,
        [
          ['a', 15, 'a3'],
          ['b', 13, 'b1'],
        ],
        10,
      ),
    ];
    assert.deepEqual(violations(operations, [segment(), segment()]), []);
  });

  const broken: readonly (readonly [string, RegExp, readonly Operation[], readonly WatchSegment[]])[] = [
    ['an acknowledged write that is lost', /acknowledged write is lost/, [write('x', 15, 18, [0, 1])], [segment()]],
    [
      'an acknowledged deletion that is lost',
      /deletion of a@15 is lost/,
      [write(undefined, 15, undefined, [0, 1])],
      [segment()],
    ],
    [
      'a deletion after which the object was written instead',
      /was deleted with that precondition/,
      [write(undefined, 11, undefined, [0, 1])],
      [segment()],
    ],
    [
      'a refused write that was stored',
      /refused is there/,
      [write('a3', undefined, undefined, [0, 1], 'refused')],
      [segment()],
    ],
    [
      'a write over another revision than expected',
      /written over revision 10/,
      [write('a2', 10, 12, [0, 1])],
      [segment()],
    ],
    ['a read of an earlier value', /gives 11, after 12/, [...WRITES, read(11, 'a1', [3.5, 3.6])], [segment()]],
    [
      'a read that does not find an existing object',
      /finds nothing, after 15/,
      [write('a3', undefined, 15, [0, 1]), read(undefined, '', [2, 3])],
      [segment()],
    ],
    ['a list of the past', /a list shows 11, after 14/, [...WRITES, listAt(11, [['a', 11, 'a1']], 6)], [segment()]],
    [
      'a list with a deleted object',
      /shows a=a2@12, but it is nothing/,
      [
        listAt(10, []),
        listAt(14, [
          ['a', 12, 'a2'],
          ['b', 13, 'b1'],
        ]),
      ],
      [segment()],
    ],
    ['a list that lacks an object', /shows b=nothing/, [listAt(10, []), listAt(13, [['a', 12, 'a2']])], [segment()]],
    ['a watch that lacks an event', /lacks ADDED b/, [], [segment(), segment(EVENTS.filter(({ key }) => key === 'a'))]],
    [
      'a watch that shows an event twice',
      /shows ADDED a=a1@11 after ADDED a=a1@11/,
      [],
      [segment([...EVENTS.slice(0, 1), ...EVENTS])],
    ],
    [
      'a watch that shows an event from before its beginning',
      /shows ADDED a=a1@11, but begins after 11/,
      [],
      [segment(), { name: 'watch', from: 11, through: 20, events: [...EVENTS] }],
    ],
    [
      'a watch that is out of order',
      /after ADDED b=b1@13/,
      [],
      [segment([...EVENTS.slice(0, 1), ...EVENTS.slice(2, 3), ...EVENTS.slice(1, 2), ...EVENTS.slice(3)])],
    ],
    [
      'a revision that is used twice',
      /revision 12 is used twice/,
      [],
      [segment(), segment(EVENTS.map((one) => (one.revision === 12 ? { ...one, value: 'other' } : one)))],
    ],
    [
      'a value that comes back',
      /a value comes back/,
      [],
      [
        segment([
          ...EVENTS,
          { type: 'DELETED', key: 'a', revision: 16, value: 'a3' },
          { type: 'ADDED', key: 'a', revision: 17, value: 'a1' },
        ]),
      ],
    ],
    [
      'an object that is back without a creation',
      /follows DELETED a/,
      [],
      [segment([...EVENTS.slice(0, 4), { type: 'MODIFIED', key: 'a', revision: 15, value: 'a3' }])],
    ],
  ];
  for (const [name, expected, operations, segments] of broken) {
    it(`finds ${name}`, () => assert.match(violations(operations, segments).join('\n'), expected));
  }
});
