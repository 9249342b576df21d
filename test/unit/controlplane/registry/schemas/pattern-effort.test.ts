/**
 * Tests regular expressions that take long to compile, because there are many large ones, or to match, because the text is
 * long.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compile } from '../../../../../api/cel/cel.ts';
import { list, string } from '../../../../../api/cel/types.ts';
import { CostExceeded } from '../../../../../api/cel/values.ts';
import type { Definition } from '../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import { validateDefinition } from '../../../../../controlplane/registry/kinds/apiextensions/definition-validation.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { validateObject } from '../../../../../controlplane/registry/schemas/value-validation.ts';

/** Returns a text of a hundred characters that compiles to tens of thousands of instructions. */
const large = (index: number): string => `${'(a?){1000}'.repeat(9)}${index}`;
const numbered = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, at) => make(at));
const withProperties = (properties: Record<string, JsonSchema>): JsonSchema => ({
  type: 'object',
  properties: { spec: { type: 'object', properties } },
});
const TOO_LONG = 'Forbidden: validation takes too long; no further validation will be run';

function definitionErrors(...schemas: readonly JsonSchema[]): string[] {
  const names = { plural: 'things', singular: 'thing', kind: 'Thing', listKind: 'ThingList' };
  const versions = schemas.map((openAPIV3Schema, index) => ({
    name: `v${index + 1}`,
    served: true,
    storage: index === 0,
    schema: { openAPIV3Schema },
  }));
  const definition = {
    metadata: { name: 'things.example.com' },
    spec: { group: 'example.com', scope: 'Namespaced', names, versions, conversion: { strategy: 'None' } },
    status: { storedVersions: ['v1'] },
  } as unknown as Definition;
  return validateDefinition(definition).map(String);
}

function seconds(run: () => void): number {
  const before = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

const definitions: Readonly<Record<string, readonly JsonSchema[]>> = {
  'in one schema': [
    withProperties(
      Object.fromEntries(numbered(500, (index) => [`p${index}`, { type: 'string', pattern: large(index) }])),
    ),
  ],
  'in many versions': numbered(100, (version) =>
    withProperties(
      Object.fromEntries(
        numbered(5, (index) => [`p${index}`, { type: 'string', pattern: large(version * 5 + index) }]),
      ),
    ),
  ),
  'in rules': [
    withProperties(
      Object.fromEntries(
        numbered(500, (index) => [
          `p${index}`,
          {
            type: 'string',
            maxLength: 2,
            'x-kubernetes-validations': [{ rule: `self.matches('${large(10_000 + index)}')` }],
          },
        ]),
      ),
    ),
  ],
};
for (const [where, schemas] of Object.entries(definitions)) {
  test(`a definition with five hundred large patterns ${where} is refused before all of them are compiled`, () => {
    let errors: string[] = [];
    assert.ok(seconds(() => (errors = definitionErrors(...schemas))) < 10);
    assert.ok(
      errors.some((error) => error.endsWith(TOO_LONG)),
      errors.join(),
    );
  });
}

test('a definition with thousands of small patterns is valid', () => {
  const pattern = (index: number): string => `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.v${index % 40})*$`;
  const properties = numbered(4000, (index): [string, JsonSchema] => [
    `p${index}`,
    { type: 'string', pattern: pattern(index) },
  ]);
  assert.deepEqual(definitionErrors(withProperties(Object.fromEntries(properties))), []);
});

test('a long text is not matched against a large pattern to the end', () => {
  const schema = withProperties({ text: { type: 'string', pattern: `(a?){1000}(a?){1000}[bc]` } });
  const object = { spec: { text: 'a'.repeat(1_000_000) } };
  let errors: string[] = [];
  assert.ok(seconds(() => (errors = validateObject(object, schema).map(String))) < 10);
  assert.ok(
    errors.some((error) => error.endsWith(TOO_LONG)),
    errors.join(),
  );
});

test('a hundred thousand texts are matched against a pattern as people write it', () => {
  const pattern =
    '^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$';
  const schema = withProperties({ list: { type: 'array', items: { type: 'string', pattern } } });
  assert.deepEqual(validateObject({ spec: { list: numbered(99_000, (index) => `${index}Mi`) } }, schema), []);
});

const environment = { variables: { texts: list(string) } };
for (const expression of [
  `texts.exists(one, 'b'.matches(one))`,
  `texts.exists(one, matches('b', one))`,
  `texts.exists(one, 'b'.find(one) != '')`,
  `texts.exists(one, 'b'.findAll(one).size() > 0)`,
]) {
  test(`patterns that come from data cost what they take to compile: ${expression}`, () => {
    const texts = numbered(100, (index) => `^${large(20_000 + index)}`);
    const program = compile(expression, environment);
    assert.ok(seconds(() => assert.throws(() => program.run(() => texts), CostExceeded)) < 10);
  });
}

test('a pattern from data is paid for once in an evaluation, and a literal one not at all', () => {
  const texts = numbered(2000, () => '[a-z]{1,63}');
  assert.equal(
    compile(`texts.all(one, 'abc'.matches(one))`, environment).run(() => texts),
    true,
  );
  assert.equal(
    compile(`texts.all(one, one.matches('^.[a-z-]{3}.{7}$'))`, environment).run(() => texts),
    true,
  );
});
