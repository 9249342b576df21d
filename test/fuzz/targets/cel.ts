/** Attacks CEL: compiling and running an expression stays within the budget and throws only the declared errors. */
import { CelCompileError, compile } from '../../../api/cel/cel.ts';
import { dyn, int, list, map, string } from '../../../api/cel/types.ts';
import { toJson } from '../../../api/cel/json-value.ts';
import { CelError, CostExceeded, Pending } from '../../../api/cel/values.ts';
import { outcome, type Target } from '../target.ts';

const OBJECT = {
  metadata: { name: 'web', labels: { app: 'web' } },
  spec: { replicas: 3, items: [{ n: 1 }, { n: 2 }], text: 'a'.repeat(1000) },
};
const environment = {
  variables: { self: dyn, oldSelf: dyn, n: int, names: list(string), labels: map(string, string) },
  libraries: { bindings: true, jsonPatch: true },
};
const BINDINGS: Readonly<Record<string, unknown>> = {
  self: OBJECT,
  oldSelf: OBJECT,
  n: 7n,
  names: ['a', 'b', 'c'],
  labels: { a: 'b' },
};

export const cel: Target = {
  seeds: [
    'self.spec.items.all(i, i.n > 0) && size(self.spec.text) < 10',
    "'%s %d %.2f'.format(['a', n, 1.5]) + names.map(x, x + x).join(',')",
    "labels.exists(k, labels[k].matches('^[a-z]+$')) ? 1 : has(self.spec.none) ? 2 : 3",
    "quantity('1Gi').isGreaterThan(quantity('1')) || url('https://a/b').getHost() == 'a' || ip('1.2.3.4').family() == 4",
    "timestamp('2024-01-01T00:00:00Z') + duration('1h') > timestamp('2023-01-01T00:00:00Z')",
    "cel.bind(x, self.spec.text, x.replace('a', 'aaaaaaaaaa').replace('a', 'aaaaaaaaaa'))",
    '[1, 2u, 1.5, b"x", null, true, {"a": 1}].map(x, type(x))',
    "sets.contains([1], [2]) || semver('1.2.3').major() == 1 || cidr('10.0.0.0/8').containsIP('10.1.1.1')",
    'optional.of(self).?spec.?items[?0].orValue({})',
  ],
  words: [
    '.all(x, ',
    '.exists(x, ',
    '.map(x, ',
    '.filter(x, ',
    '.exists_one(',
    ').',
    '(',
    ')',
    '[',
    ']',
    '{',
    '}',
    ',',
    ':',
    '?',
    '&&',
    '||',
    '!',
    '==',
    '!=',
    '<=',
    '+',
    '-',
    '*',
    '/',
    '%',
    ' in ',
    'self',
    'oldSelf',
    'n',
    'names',
    'labels',
    '.matches("(a+)+$")',
    '.replace("", "aaaaaaaaaaaaaaaaaaaa")',
    '.split("")',
    '.join()',
    '.lowerAscii()',
    '.substring(1)',
    '.format([self])',
    '.sum()',
    'size(',
    'string(',
    'int(',
    'uint(',
    'double(',
    'bytes(',
    'dyn(',
    'type(',
    'duration("1h")',
    'timestamp("2024-01-01T00:00:00Z")',
    'r"',
    "'''",
    'b"',
    '\\x',
    '0x',
    '1u',
    '1e308',
    '-9223372036854775808',
    '.spec',
    '.items',
    '.text',
    '.?',
    '[?0]',
    'cel.bind(x, ',
    '.find("a*")',
    '.findAll("a")',
    '.distinct()',
    '.sort()',
    '.flatten()',
    'lists.range(100000)',
    '.reverse()',
    '.transformMap(k, v, ',
    'jsonpatch.escapeKey(',
    'optional.unwrap([',
    'quantity("1")',
    'url("http://a")',
    'ip("::1")',
    '.asString()',
    'null',
    'true',
  ],
  generate(random) {
    const times = 1 << random.below(14);
    const doubled = "'aaaaaaaaaa'";
    switch (random.below(9)) {
      case 0:
        return Buffer.from('('.repeat(times) + '1' + ')'.repeat(times));
      case 1:
        return Buffer.from('['.repeat(times) + ']'.repeat(times));
      case 2:
        return Buffer.from('!'.repeat(times) + 'true');
      case 3:
        return Buffer.from('1' + random.pick([' + 1', ' && true', ' ? 1 : 1', ' == 1', '.a', '[0]']).repeat(times));
      case 4: {
        let text = 'true';
        for (let depth = 1 + random.below(12); depth > 0; depth -= 1) text = `names.map(x${depth}, ${text})`;
        return Buffer.from(text);
      }
      case 5:
        return Buffer.from(`[1,2,3,4,5,6,7,8,9,0].all(a, `.repeat(1 + random.below(10)) + 'true' + ')'.repeat(10));
      case 6:
        return Buffer.from(
          `${doubled}${random.pick([".replace('a', 'aaaaaaaaaa')", ".replace('', 'aa')", ".split('').join('aa')"]).repeat(1 + random.below(12))}`,
        );
      case 7: {
        let text = doubled;
        for (let depth = 1 + random.below(30); depth > 0; depth -= 1)
          text = `cel.bind(x${depth}, ${text}, x${depth} + x${depth})`;
        return Buffer.from(text);
      }
      default:
        return Buffer.from(
          `self.spec.text.matches('${random.pick(['(a*)*b', '(a|aa)+$', 'a{1000}{1000}', '(?:a?){500}a{500}', '((((a{10}){10}){10}){10})', '.*.*.*.*=.*'])}')`,
        );
    }
  },
  execute(input) {
    return outcome(() => {
      const program = compile(input.toString(), environment);
      return [toJson(program.run((name) => BINDINGS[name], { left: 1_000_000 }))];
    }, [CelCompileError, CelError, CostExceeded, Pending]);
  },
};

/** Attacks the compiler alone. The cost of running is limited by a budget, but the cost of compiling only by the size. */
export const celCompile: Target = {
  seeds: cel.seeds,
  words: cel.words,
  execute(input) {
    return outcome(() => [typeof compile(input.toString(), environment)], [CelCompileError]);
  },
};
