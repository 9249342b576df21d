/** Tests which groups of watches a change concerns, found by a route, and when a group goes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import type { Pod } from '../../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { CacheEvent } from '../../../../controlplane/storage/cache-event.ts';
import { CachedObject, LabelSets } from '../../../../controlplane/storage/cached-object.ts';
import { encodeObject, stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import { type Selection, selectionOf } from '../../../../controlplane/storage/selection.ts';
import { type Member, WatchGroups } from '../../../../controlplane/storage/watch-groups.ts';

const fields = (object: KubeObject): Record<string, string> => ({
  'spec.nodeName': (object as Pod).spec?.nodeName ?? '',
});

const PREFIX = '/core/pods/';
const context = {
  resource: { group: '', resource: 'pods', namespaced: true, fields },
  prefixLength: PREFIX.length,
  labelSets: new LabelSets(),
  freeze: false,
  isClosed: false,
};

const watchGroups = (): WatchGroups =>
  new WatchGroups({
    indexedFields: ['spec.nodeName'],
    namespaced: true,
    revision: () => 1,
    keyOf: (namespace, name) => `${PREFIX}${namespace}/${name}`,
  });

function creation(namespace: string, name: string, nodeName: string): CacheEvent {
  const key = `${PREFIX}${namespace}/${name}`;
  const value = encodeObject({ kind: 'Pod', apiVersion: 'v1', metadata: { name, namespace }, spec: { nodeName } });
  const stored = { key, value: stampRevision(value, 2), createRevision: 2, revision: 2 };
  return new CacheEvent(2, key, new CachedObject(context, stored), undefined);
}

function memberOf(groups: WatchGroups, selection: Selection): Member {
  const group = groups.of(selection);
  const sink = { onEvents: () => true, onEnd: () => undefined };
  const progress = { initial: undefined, paused: false, position: 1, live: true, shown: 1, closed: false };
  const member: Member = { sink, group, bookmarks: false, ...progress };
  group.members.add(member);
  return member;
}

const onNode = (node: string): Selection => selectionOf('', { fields: parseFieldSelector(`spec.nodeName=${node}`) });

test('a change concerns the groups that select its key, its namespace, its indexed field, and everything', () => {
  const selections: readonly (readonly [string, Selection])[] = [
    ['everything', selectionOf('')],
    ['namespace a', selectionOf('a')],
    ['namespace b', selectionOf('b')],
    ['a/web', selectionOf('a', { name: 'web' })],
    ['a/db', selectionOf('a', { name: 'db' })],
    ['node n1', onNode('n1')],
    ['node n2', onNode('n2')],
  ];
  const groups = watchGroups();
  const names = new Map(selections.map(([name, selection]) => [memberOf(groups, selection).group, name]));
  const shown = groups.shownTo([creation('a', 'web', 'n1')], (_group, error) => assert.fail(String(error)));
  assert.deepEqual([...shown.keys()].map((group) => names.get(group)).toSorted(), [
    'a/web',
    'everything',
    'namespace a',
    'node n1',
  ]);
});

test('watches with equal selections share a group, which goes with the last of them', () => {
  const groups = watchGroups();
  const [first, second] = [memberOf(groups, onNode('n1')), memberOf(groups, onNode('n1'))];
  assert.equal(first.group, second.group);
  groups.remove(first);
  const shown = (): number => groups.shownTo([creation('a', 'web', 'n1')], () => assert.fail()).size;
  assert.equal(shown(), 1);
  groups.remove(second);
  assert.deepEqual([shown(), [...groups.all()]], [0, []]);
});

test('a group whose selection throws is reported and gets no batch, and the others get theirs', () => {
  const groups = watchGroups();
  const healthy = memberOf(groups, selectionOf('')).group;
  const failing: Selection = {
    ...selectionOf('a'),
    everything: false,
    matches() {
      throw new Error('no such field');
    },
  };
  const broken = memberOf(groups, failing).group;
  const reported: unknown[] = [];
  const shown = groups.shownTo([creation('a', 'web', 'n1')], (group) => reported.push(group));
  assert.deepEqual(reported, [broken]);
  assert.deepEqual([...shown.keys()], [healthy]);
});
