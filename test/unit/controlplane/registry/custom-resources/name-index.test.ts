/**
 * Tests names of definitions: who gets one that becomes free, and what thousands of definitions that want the same name cost.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { acceptNames, takenBy } from '../../../../../controlplane/registry/custom-resources/accepted-names.ts';
import type { DefinitionNames } from '../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import { NameIndex } from '../../../../../controlplane/registry/custom-resources/name-index.ts';

const GROUP = 'example.com';
const NONE = takenBy([]);

/** Decides on definitions until none is left that others wake, as `CustomResources` does. */
class Decisions {
  readonly index = new NameIndex();
  readonly accepted = new Map<string, DefinitionNames>();
  decided = 0;
  readonly #wanted = new Map<string, DefinitionNames>();

  define(wanted: DefinitionNames): void {
    this.#wanted.set(wanted.plural, wanted);
    this.#decideOn([wanted.plural]);
  }

  delete(plural: string): void {
    this.#wanted.delete(plural);
    this.accepted.delete(plural);
    this.#decideOn(this.index.delete(plural));
  }

  kindOf(plural: string): string | undefined {
    return this.accepted.get(plural)?.kind;
  }

  #decideOn(first: readonly string[]): void {
    const queue = [...first];
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
      const wanted = this.#wanted.get(name);
      if (wanted === undefined) continue;
      this.decided += 1;
      const taken = this.index.takenFrom(name, GROUP, NONE);
      const { accepted } = acceptNames(wanted, this.accepted.get(name), taken);
      this.accepted.set(name, accepted);
      queue.push(...this.index.set(name, GROUP, { accepted, wanted }));
    }
  }
}

describe('a name', () => {
  test('that becomes free goes to the definition that has waited longest', () => {
    const all = new Decisions();
    for (const plural of ['a', 'b', 'c']) all.define({ plural, kind: 'Same' });
    assert.deepEqual(
      ['a', 'b', 'c'].map((one) => all.kindOf(one)),
      ['Same', '', ''],
    );
    all.delete('a');
    assert.deepEqual(
      ['b', 'c'].map((one) => all.kindOf(one)),
      ['Same', ''],
    );
    all.delete('b');
    assert.equal(all.kindOf('c'), 'Same');
  });

  test('that the first in the line does not take goes to the next', () => {
    const all = new Decisions();
    all.define({ plural: 'owner', kind: 'Owner', shortNames: ['x'] });
    all.define({ plural: 'other', kind: 'Other', shortNames: ['y'] });
    all.define({ plural: 'first', kind: 'First', shortNames: ['x', 'y'] });
    all.define({ plural: 'second', kind: 'Second', shortNames: ['x'] });
    all.delete('owner');
    assert.equal(all.accepted.get('first')?.shortNames, undefined);
    assert.deepEqual(all.accepted.get('second')?.shortNames, ['x']);
    all.delete('second');
    all.delete('other');
    assert.deepEqual(all.accepted.get('first')?.shortNames, ['x', 'y']);
  });

  test('is free for the same definition, for other groups, and as a kind where it is that of a resource', () => {
    const index = new NameIndex();
    const names = { plural: 'things', kind: 'Thing', singular: 'thing' };
    index.set('things.example.com', GROUP, { accepted: names, wanted: names });
    const taken = (definition: string, group: string): boolean[] => {
      const { resources, kinds } = index.takenFrom(definition, group, NONE);
      return [resources.has('things'), resources.has('thing'), kinds.has('Thing'), kinds.has('things')];
    };
    assert.deepEqual(taken('others.example.com', GROUP), [true, true, true, false]);
    assert.deepEqual(taken('things.example.com', GROUP), [false, false, false, false]);
    assert.deepEqual(taken('others.example.org', 'example.org'), [false, false, false, false]);
  });
});

test('thousands of definitions that want one name are decided on once, and once more for each that gets it', () => {
  const all = new Decisions();
  const count = 3000;
  for (let at = 0; at < count; at += 1) all.define({ plural: `p${at}`, kind: 'Same', shortNames: ['s'] });
  assert.equal(all.decided, count);
  for (let at = 0; at < count - 1; at += 1) all.delete(`p${at}`);
  assert.equal(all.kindOf(`p${count - 1}`), 'Same');
  assert.ok(all.decided <= 2 * count, String(all.decided));
});
