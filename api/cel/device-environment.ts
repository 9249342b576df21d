/**
 * Declares the variable `device` of the expressions that select devices (dynamic resource allocation): its type, the sizes for
 * the cost estimate of an expression, and its value.
 */
import { MAX_DRIVER_BYTES, MAX_IDENTIFIER_BYTES, MAX_PROPERTIES, MAX_VALUE_BYTES } from '../kinds/device-limits.ts';
import { parseQuantity, QuantityError } from '../meta/quantity.ts';
import { struct } from './admission-variables.ts';
import type { CelEnvironment } from './cel.ts';
import type { SizeAt } from './cost-estimate.ts';
import { quantityValue } from './kubernetes/quantity.ts';
import { versionValue } from './kubernetes/semver.ts';
import { bool, dyn, map, opaque, string } from './types.ts';
import { adapt, type CelMap, type CelValue } from './values.ts';

const device = struct('kubernetes.DRADevice', {
  driver: string,
  attributes: map(string, map(string, dyn)),
  capacity: map(string, map(string, opaque('kubernetes.Quantity'))),
  allowMultipleAllocations: bool,
});

/**
 * Returns the maximum size of what a path below `device` reads. The API limits domains, identifiers and values alike in all
 * attributes and capacities, so the keys in a path do not matter. The step `@keys` stands for the keys of a map: the domains,
 * or the identifiers in a domain.
 */
const deviceSizes: SizeAt = ([, field, ...steps]) => {
  if (field === undefined || field === 'allowMultipleAllocations') return steps.length === 0 ? 0 : undefined;
  if (field === 'driver') return steps.length === 0 ? MAX_DRIVER_BYTES : undefined;
  if (field !== 'attributes' && field !== 'capacity') return undefined;
  const key = steps.indexOf('@keys');
  if (key >= 0) return key === steps.length - 1 && key < 2 ? [MAX_DRIVER_BYTES, MAX_IDENTIFIER_BYTES][key] : undefined;
  if (steps.length < 2) return MAX_PROPERTIES;
  return steps.length > 2 ? undefined : field === 'attributes' ? MAX_VALUE_BYTES : 0;
};

/** The environment of selectors of devices, in claims and device classes. */
export const DEVICE_ENVIRONMENT: CelEnvironment = {
  variables: { device },
  libraries: { bindings: true },
  sizeAt: deviceSizes,
};

/** The parts of a device that an expression can read. */
interface SelectableDevice {
  readonly attributes?: Readonly<Record<string, DeviceAttribute>>;
  readonly capacity?: Readonly<Record<string, { readonly value: string }>>;
  readonly allowMultipleAllocations?: boolean;
}

interface DeviceAttribute {
  readonly bool?: boolean;
  readonly int?: number;
  readonly string?: string;
  readonly version?: string;
}

/** A domain without attributes has an empty map, so that expressions do not need to check the domain first. */
class Domains extends Map<string, CelMap> {
  override get(domain: string): CelMap {
    return super.get(domain) ?? new Map<string, CelValue>();
  }
}

/** Returns the value of `device`. Attributes and capacities without a domain belong to the driver's domain. */
export function deviceValue(driver: string, { attributes, capacity, allowMultipleAllocations }: SelectableDevice) {
  return {
    driver,
    attributes: byDomain(driver, attributes ?? {}, attributeValue),
    capacity: byDomain(driver, capacity ?? {}, ({ value }) => capacityValue(value)),
    allowMultipleAllocations: allowMultipleAllocations ?? false,
  };
}

function byDomain<T>(
  driver: string,
  entries: Readonly<Record<string, T>>,
  valueOf: (entry: T) => CelValue | undefined,
): Domains {
  const domains = new Domains();
  for (const [name, entry] of Object.entries(entries)) {
    const slash = name.indexOf('/');
    const domain = slash === -1 ? driver : name.slice(0, slash);
    const value = valueOf(entry);
    if (value === undefined) continue;
    const properties = domains.has(domain) ? domains.get(domain) : new Map<string, CelValue>();
    domains.set(domain, properties.set(name.slice(slash + 1), value));
  }
  return domains;
}

function attributeValue({ bool, int, string, version }: DeviceAttribute): CelValue | undefined {
  if (bool !== undefined) return bool;
  if (int !== undefined) return adapt(int);
  return string ?? (version === undefined ? undefined : versionValue(version));
}

function capacityValue(text: string): CelValue | undefined {
  try {
    return quantityValue(parseQuantity(text));
  } catch (error) {
    if (error instanceof QuantityError) return undefined;
    throw error;
  }
}
