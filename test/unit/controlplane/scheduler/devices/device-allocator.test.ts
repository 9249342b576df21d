import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { DeviceClass, ResourceClaim, ResourceSlice } from '../../../../../api/kinds/kinds.ts';
import { AllocatedDevices } from '../../../../../controlplane/scheduler/devices/allocated-devices.ts';
import { allocateDevices } from '../../../../../controlplane/scheduler/devices/device-allocator.ts';
import { DevicePools } from '../../../../../controlplane/scheduler/devices/device-pools.ts';
import { DeviceSelection } from '../../../../../controlplane/scheduler/devices/device-selection.ts';
import { SearchBudget, SearchExhausted } from '../../../../../controlplane/scheduler/devices/search-budget.ts';

const DRIVER = 'gpu.example.com';
const NODE = { name: 'n1', labels: { zone: 'a' } };

interface SliceWords {
  readonly pool?: string;
  readonly generation?: number;
  readonly count?: number;
  readonly spec?: object;
}

function slice(devices: readonly object[], words: SliceWords = {}): ResourceSlice {
  const { pool = 'p', generation = 1, count = 1, spec = { nodeName: 'n1' } } = words;
  return {
    metadata: { name: pool },
    spec: { driver: DRIVER, pool: { name: pool, generation, resourceSliceCount: count }, devices, ...spec },
  } as unknown as ResourceSlice;
}

function gpu(name: string, attributes: object = {}, more: object = {}): object {
  return { name, attributes, ...more };
}

function claim(requests: readonly object[], more: object = {}, name = 'c'): ResourceClaim {
  return {
    metadata: { name, namespace: 'ns', uid: name },
    spec: { devices: { requests, ...more } },
  } as unknown as ResourceClaim;
}

const exactly = (name: string, more: object = {}): object => ({
  name,
  exactly: { deviceClassName: 'gpu', allocationMode: 'ExactCount', count: 1, ...more },
});
const cel = (expression: string): object => ({ selectors: [{ cel: { expression } }] });

const CLASSES: Readonly<Record<string, object>> = {
  gpu: { selectors: [{ cel: { expression: `device.driver == "${DRIVER}"` } }] },
  configured: { config: [{ opaque: { driver: DRIVER, parameters: { mode: 'class' } } }] },
};

function outcomeOf(
  claims: readonly ResourceClaim[],
  slices: readonly ResourceSlice[],
  allocated: readonly string[] = [],
  selection = new DeviceSelection(),
) {
  const taken = new AllocatedDevices();
  const results = allocated.map((name) => ({ driver: DRIVER, pool: 'p', device: name, request: 'r' }));
  taken.set('other', { devices: { results } });
  return new SearchBudget().onNode((budget) =>
    allocateDevices({
      claims,
      pools: new DevicePools(slices).for(NODE, taken),
      allocated: taken,
      newShareId: () => 'share',
      deviceClass: (name) =>
        CLASSES[name] === undefined
          ? undefined
          : ({ metadata: { name }, spec: CLASSES[name] } as unknown as DeviceClass),
      selection,
      budget,
    }),
  );
}

/** Returns `request=device` for all claims, or the kind of failure. */
function devices(...args: Parameters<typeof outcomeOf>): string {
  const outcome = outcomeOf(...args);
  if (outcome.kind !== 'allocated') return outcome.kind === 'invalid' ? outcome.message : outcome.kind;
  return outcome.allocations
    .flatMap((allocation) => allocation.devices?.results ?? [])
    .map(({ request, device }) => `${request}=${device}`)
    .join(' ');
}

const two = [slice([gpu('a', { model: { string: 'x' } }), gpu('b', { model: { string: 'y' } })])];
const counter = (value: string): object => ({ counters: { memory: { value } } });
const partition = (name: string, memory: string): object =>
  gpu(name, {}, { consumesCounters: [{ counterSet: 'card', ...counter(memory) }] });
const card = [
  slice([], { count: 2, spec: { nodeName: 'n1', sharedCounters: [{ name: 'card', ...counter('10Gi') }] } }),
  slice([partition('big', '8Gi'), partition('small-1', '4Gi'), partition('small-2', '4Gi')], { count: 2 }),
];
const tainted = [slice([gpu('t', {}, { taints: [{ key: 'broken', value: 'yes', effect: 'NoSchedule' }] })])];
const tolerations = [{ key: 'broken', operator: 'Exists', effect: 'NoSchedule' }];

describe('the devices of a claim', () => {
  for (const [what, expected, claims, slices, allocated] of [
    ['are those that nobody has', 'r=b', [claim([exactly('r')])], two, ['a']],
    ['are missing if others have them', 'unavailable', [claim([exactly('r')])], two, ['a', 'b']],
    ['are as many as requested', 'r=a r=b', [claim([exactly('r', { count: 2 })])], two],
    ['are not more than there are', 'unavailable', [claim([exactly('r', { count: 3 })])], two],
    [
      'are selected by attributes of the domain of the driver',
      'r=b',
      [claim([exactly('r', cel(`device.attributes["${DRIVER}"].model == "y"`))])],
      two,
    ],
    [
      'are not those of a domain that they lack',
      'unavailable',
      [claim([exactly('r', cel('"other.example.com" in device.attributes'))])],
      two,
    ],
    [
      'cannot be selected by an attribute that one of them lacks',
      'claim ns/c: selector #1: CEL runtime error: no such key: nothing',
      [claim([exactly('r', cel(`device.attributes["${DRIVER}"].nothing == "y"`))])],
      two,
    ],
    [
      'are selected by versions and capacities',
      'r=n',
      [
        claim([
          exactly(
            'r',
            cel(
              `device.attributes["${DRIVER}"].v.isGreaterThan(semver("1.9.0")) && device.capacity["${DRIVER}"].mem.compareTo(quantity("1Gi")) >= 0`,
            ),
          ),
        ]),
      ],
      [
        slice([
          gpu('o', { v: { version: '1.2.0' } }, { capacity: { mem: { value: '2Gi' } } }),
          gpu('n', { v: { version: '1.10.0' } }, { capacity: { mem: { value: '2Gi' } } }),
        ]),
      ],
    ],
    [
      'have the capacity that is requested',
      'r=l',
      [claim([exactly('r', { capacity: { requests: { mem: '2Gi' } } })])],
      [
        slice([
          gpu('s', {}, { capacity: { mem: { value: '1Gi' } } }),
          gpu('l', {}, { capacity: { mem: { value: '4Gi' } } }),
        ]),
      ],
    ],
    ['are different ones for two requests', 'r=a s=b', [claim([exactly('r'), exactly('s')])], two],
    [
      'leave another request what it alone can use',
      'r=b s=a',
      [claim([exactly('r'), exactly('s', cel(`device.attributes["${DRIVER}"].model == "x"`))])],
      two,
    ],
    ['are different ones for two claims', 'r=a s=b', [claim([exactly('r')]), claim([exactly('s')])], two],
    ['are all that suit', 'r=a r=b', [claim([exactly('r', { allocationMode: 'All' })])], two],
    [
      'are not all while somebody has one',
      'unavailable',
      [claim([exactly('r', { allocationMode: 'All' })])],
      two,
      ['a'],
    ],
    [
      'are not all if there is none',
      'unavailable',
      [claim([exactly('r', { allocationMode: 'All', ...cel('false') })])],
      two,
    ],
    [
      'are in use with access for administration',
      'r=a',
      [claim([exactly('r', { adminAccess: true })])],
      two,
      ['a', 'b'],
    ],
    [
      'are refused with the name of the claim whose later alternative cannot be evaluated',
      'claim ns/first: selector #1: CEL runtime error: no such key: nothing',
      [
        claim(
          [
            {
              name: 'r',
              firstAvailable: [
                { name: 'best', deviceClassName: 'gpu', count: 2 },
                {
                  name: 'other',
                  deviceClassName: 'gpu',
                  count: 1,
                  ...cel(`device.attributes["${DRIVER}"].nothing == "y"`),
                },
              ],
            },
          ],
          {},
          'first',
        ),
        claim([exactly('s')], {}, 'second'),
      ],
      two,
    ],
    [
      'are those of the first alternative that is available',
      'r/cheap=a',
      [
        claim([
          {
            name: 'r',
            firstAvailable: [
              { name: 'best', deviceClassName: 'gpu', count: 3 },
              { name: 'cheap', deviceClassName: 'gpu', count: 1 },
            ],
          },
        ]),
      ],
      two,
    ],
    [
      'agree in an attribute',
      'r=b s=d',
      [
        claim([exactly('r'), exactly('s')], {
          constraints: [{ requests: ['r', 's'], matchAttribute: `${DRIVER}/bus` }],
        }),
      ],
      [
        slice([
          gpu('a', { bus: { int: 1 } }),
          gpu('b', { bus: { int: 2 } }),
          gpu('c', {}),
          gpu('d', { [`${DRIVER}/bus`]: { int: 2 } }),
        ]),
      ],
    ],
    [
      'differ in an attribute',
      'r=a s=c',
      [claim([exactly('r'), exactly('s')], { constraints: [{ distinctAttribute: `${DRIVER}/bus` }] })],
      [slice([gpu('a', { bus: { int: 1 } }), gpu('b', { bus: { int: 1 } }), gpu('c', { bus: { int: 2 } })])],
    ],
    [
      'share the counters of their card',
      'r=small-1 s=small-2',
      [claim([exactly('r', cel('!device.driver.contains("none")')), exactly('s')])],
      card,
      ['none'],
    ],
    ['have what other claims left of the counters', 'unavailable', [claim([exactly('r')])], card, ['big']],
    ['are not tainted', 'unavailable', [claim([exactly('r')])], tainted],
    ['are tainted if the request tolerates that', 'r=t', [claim([exactly('r', { tolerations })])], tainted],
    [
      'are not those of a pool that is being published',
      'unavailable',
      [claim([exactly('r')])],
      [slice([gpu('a')], { count: 2 })],
    ],
    [
      'are those of the newest generation',
      'r=new',
      [claim([exactly('r')])],
      [slice([gpu('old')]), slice([gpu('new')], { generation: 2 })],
    ],
    [
      'are not those of another node',
      'unavailable',
      [claim([exactly('r')])],
      [slice([gpu('a')], { spec: { nodeName: 'n2' } })],
    ],
    ['have a class that exists', 'unavailable', [claim([exactly('r', { deviceClassName: 'none' })])], two],
  ] as const) {
    it(what, () => assert.equal(devices(claims, slices, allocated), expected));
  }
});

describe('the search for devices', () => {
  /** Creates devices, and counts the reads of their attributes. */
  function counted(count: number): { readonly slices: readonly ResourceSlice[]; readonly reads: () => number } {
    let reads = 0;
    const devices = Array.from({ length: count }, (_, index) => {
      const attributes = { n: { int: index }, same: { int: index % 15 } };
      return Object.defineProperty({ name: `d${index}` }, 'attributes', {
        get: () => {
          reads += 1;
          return attributes;
        },
      });
    });
    return { slices: [slice(devices)], reads: () => reads };
  }

  it('gives up where the constraints of a claim leave too many possibilities', () => {
    const { slices, reads } = counted(1_000);
    const constraints = Array.from({ length: 32 }, (_, index) => ({
      distinctAttribute: `${DRIVER}/${index < 31 ? 'n' : 'same'}`,
    }));
    assert.equal(devices([claim([exactly('r', { count: 16 })], { constraints })], slices), 'unavailable');
    assert.ok(reads() < 200_000, `${reads()} looks at attributes`);
  });

  it('evaluates some of many expressions, and the others when it is repeated', () => {
    const { slices, reads } = counted(500);
    const selectors = Array.from({ length: 32 }, (_, index) => ({
      cel: { expression: `device.attributes["${DRIVER}"].all(a, a.size() > 0 || ${index} == 99)` },
    }));
    const claims = [claim([exactly('r', { selectors })])];
    const selection = new DeviceSelection();
    assert.equal(outcomeOf(claims, slices, [], selection).kind, 'unavailable');
    const first = reads();
    assert.ok(first < 5_000, `${first} evaluations`);
    const kinds = new Set<string>();
    for (let search = 0; search < 50; search += 1) kinds.add(outcomeOf(claims, slices, [], selection).kind);
    assert.deepEqual([...kinds], ['unavailable', 'allocated']);
    assert.ok(reads() > first);
  });

  it('costs a pod no more on many nodes', () => {
    const budget = new SearchBudget(100_000);
    const spendAll = (): void => {
      assert.throws(
        () =>
          budget.onNode((share) => {
            for (;;) share.spend(1);
          }),
        SearchExhausted,
      );
    };
    budget.onNode((share) => share.spend(10));
    spendAll();
    budget.onNode((share) => share.spend(40_000));
    spendAll();
    assert.throws(() => budget.onNode((share) => share.spend(1)), SearchExhausted);
  });
});

describe('an allocation', () => {
  const allocationOf = (claims: readonly ResourceClaim[], slices: readonly ResourceSlice[]) => {
    const outcome = outcomeOf(claims, slices);
    assert.equal(outcome.kind, 'allocated');
    return outcome.kind === 'allocated' ? outcome.allocations[0] : undefined;
  };

  it('names the node of local devices, and the nodes that all selectors select', () => {
    assert.deepEqual(allocationOf([claim([exactly('r')])], two)?.nodeSelector, {
      nodeSelectorTerms: [{ matchFields: [{ key: 'metadata.name', operator: 'In', values: ['n1'] }] }],
    });
    const term = { matchExpressions: [{ key: 'zone', operator: 'In', values: ['a'] }] };
    const selector = { nodeSelectorTerms: [term] };
    const zonal = slice([gpu('a'), gpu('b')], { spec: { nodeSelector: selector } });
    assert.deepEqual(allocationOf([claim([exactly('r', { count: 2 })])], [zonal])?.nodeSelector, selector);
    const everywhere = slice([gpu('a')], { spec: { allNodes: true } });
    assert.equal(allocationOf([claim([exactly('r')])], [everywhere])?.nodeSelector, undefined);
    const perDevice = slice([gpu('a', {}, { nodeName: 'n2' }), gpu('b', {}, { nodeName: 'n1' })], {
      spec: { perDeviceNodeSelection: true },
    });
    assert.equal(devices([claim([exactly('r')])], [perDevice]), 'r=b');
  });

  it('has the configuration of the class, then that of the claim for its requests', () => {
    const opaque = (mode: string): object => ({ opaque: { driver: DRIVER, parameters: { mode } } });
    const config = [
      { ...opaque('own'), requests: ['r'] },
      { ...opaque('other'), requests: ['s'] },
    ];
    assert.deepEqual(
      allocationOf([claim([exactly('r', { deviceClassName: 'configured' })], { config })], two)?.devices?.config,
      [
        { ...opaque('class'), source: 'FromClass', requests: ['r'] },
        { ...opaque('own'), source: 'FromClaim', requests: ['r'] },
      ],
    );
  });
});
