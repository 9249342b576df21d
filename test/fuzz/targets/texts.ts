/** Attacks short texts with a grammar: selectors, quantities and names. */
import { isDeepStrictEqual } from 'node:util';
import { parseFieldSelector, type FieldSelector } from '../../../api/meta/field-selector.ts';
import * as nameRules from '../../../api/meta/names.ts';
import {
  canonicalQuantity,
  formatQuantity,
  parseQuantity,
  QuantityError,
  addQuantities,
  milliUnits,
  wholeUnits,
} from '../../../api/meta/quantity.ts';
import { parseSelector } from '../../../api/meta/selector-parser.ts';
import { RequirementError, validateLabels } from '../../../api/meta/selector.ts';
import { StatusError } from '../../../api/meta/status-error.ts';
import { law, outcome, type Target } from '../target.ts';

const repeated = (parts: readonly string[]) => (random: { below(limit: number): number }) =>
  Buffer.from((parts[random.below(parts.length)] ?? '').repeat(1 << random.below(16)));

export const selectors: Target = {
  seeds: [
    'a=b,c in (d, e),!f,g notin (h),i!=j,k>1,l<2,m',
    'metadata.name=a,spec.nodeName!=b\\,c\\=d',
    'a in (,)',
    '__proto__=1,constructor',
  ],
  words: ['=', '==', '!=', ' in ', ' notin ', '(', ')', ',', '!', '>', '<', '\\', '\\,', 'a', 'a.b/c', 'metadata.name'],
  generate: repeated(['a=b,', '(', 'a in (', '!', ' ', ',', 'a,', '\\', '=', 'a']),
  execute(input) {
    const text = input.toString();
    const label = outcome(() => {
      const selector = parseSelector(text);
      selector.matches({ a: 'b', m: '1' });
      const again = parseSelector(selector.toString());
      law(again.toString() === selector.toString(), `${selector.toString()} reads as ${again.toString()}`);
      return 'label';
    }, [StatusError, RequirementError, Error]);
    law(!label.startsWith('Violation') && !label.startsWith('TypeError') && !label.startsWith('RangeError'), label);
    const field = outcome(() => {
      const selector = parseFieldSelector(text);
      selector.matches(() => 'a');
      const again = parseFieldSelector(selector.toString());
      // kube-apiserver sorts terms as they are written: `a==c` comes before `a=b`, and `a=c` after it.
      law(isDeepStrictEqual(inOrder(again), inOrder(selector)), `${selector.toString()} reads as ${again.toString()}`);
      return 'field';
    }, [StatusError, RequirementError, Error]);
    law(!field.startsWith('Violation') && !field.startsWith('TypeError') && !field.startsWith('RangeError'), field);
    return `${label}; ${field}`;
  },
};

const inOrder = ({ requirements }: FieldSelector): string[] =>
  requirements.map((one) => JSON.stringify(one)).toSorted();

export const quantities: Target = {
  seeds: ['500m', '1.5Gi', '1e3', '-0.0001', '9223372036854775807', '1E-9', '+1.Ki', '.5n'],
  words: ['e', 'E', 'i', 'n', 'u', 'm', 'k', 'Ki', 'Mi', 'Gi', 'Ei', '-', '+', '.', '0', '9', '1e100', 'e-200'],
  generate: repeated(['1', '9', '0', '.', '0.0', '1e', 'e9', '-', 'Ki']),
  execute(input) {
    const text = input.toString();
    return outcome(() => {
      const quantity = parseQuantity(text);
      const canonical = canonicalQuantity(text);
      law(canonicalQuantity(canonical) === canonical, `${canonical} is not canonical`);
      law(parseQuantity(formatQuantity(quantity)).nano === quantity.nano, `${text} changes in writing`);
      formatQuantity(addQuantities(quantity, quantity));
      milliUnits(quantity);
      wholeUnits(quantity);
      return `${quantity.format} ${canonical.replaceAll(/\d+/g, '#')}`;
    }, [QuantityError]);
  },
};

const rules = [
  nameRules.dnsLabelErrors,
  nameRules.dnsSubdomainErrors,
  nameRules.dnsSubdomainWithUnderscoreErrors,
  nameRules.rfc1035LabelErrors,
  nameRules.wildcardSubdomainErrors,
  nameRules.qualifiedNameErrors,
  nameRules.labelValueErrors,
  nameRules.pathSegmentErrors,
  nameRules.cIdentifierErrors,
  nameRules.portNameErrors,
  nameRules.percentErrors,
  nameRules.httpHeaderNameErrors,
  nameRules.relaxedEnvironmentNameErrors,
  nameRules.configKeyErrors,
];
const { nameIsSubdomain, nameIsLabel, nameIsPathSegment } = nameRules;
const forms = [nameIsSubdomain, nameIsLabel, nameIsPathSegment];
const pathRules = [
  nameRules.fullyQualifiedNameErrors,
  nameRules.fullyQualifiedDomainErrors,
  nameRules.domainPrefixedPathErrors,
];

export const names: Target = {
  seeds: ['a-b.c', 'example.com/a_B.c', '*.a', '-a', 'A_B', 'x'.repeat(254), '50%', 'http', '..'],
  words: ['.', '-', '_', '/', '*', '*.', 'a', 'A', '0', '%', 'é', 'x--x'],
  generate: repeated(['a', 'a.', 'a-', '-', '.', 'A', '/', 'a/', '0', '-a.']),
  execute(input) {
    const text = input.toString();
    let good = '';
    for (const rule of rules) good += rule(text).length;
    for (const rule of forms) good += [true, false].map((asPrefix) => rule(text, { asPrefix }).length);
    for (const rule of pathRules) good += rule('f', text).length;
    if (text.length < 200) nameRules.generateName(text);
    validateLabels({ [text]: text }, 'metadata.labels');
    return good;
  },
};
