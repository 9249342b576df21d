/**
 * Converts `v1beta1` of the resource group to the stored form and back. In `v1beta1`, the fields of an exact request are fields
 * of the request itself, and the properties of a device are in `basic`. `v1beta2` equals the stored form except for its name.
 */
import { isJsonObject } from '../../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../../../api/meta/object.ts';
import type { Conversion } from '../../strategy.ts';

const API = 'resource.k8s.io';
const REQUEST_FIELDS = [
  'deviceClassName',
  'selectors',
  'allocationMode',
  'count',
  'adminAccess',
  'tolerations',
  'capacity',
] as const;

function objects(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isJsonObject) : [];
}

/** Returns the object at a path of member names, if it exists. */
function at(object: KubeObject, ...path: string[]): JsonObject | undefined {
  let value: JsonValue | undefined = object as unknown as JsonObject;
  for (const name of path) value = isJsonObject(value) ? value[name] : undefined;
  return isJsonObject(value) ? value : undefined;
}

/** Moves the fields of an exact request into `exactly`. Drops them if each is null, an empty text or 0. */
function nest(request: JsonObject): void {
  const exactly: JsonObject = {};
  for (const field of REQUEST_FIELDS) {
    const value = request[field];
    delete request[field];
    if (value !== undefined) exactly[field] = value;
  }
  const isSet = Object.values(exactly).some((value) => value !== null && value !== '' && value !== 0);
  if (isSet) request['exactly'] = exactly;
}

function flatten(request: JsonObject): void {
  const { exactly } = request;
  delete request['exactly'];
  // The name of the class is always printed, also beside alternatives.
  Object.assign(request, isJsonObject(exactly) ? exactly : { deviceClassName: '' });
}

function requests(...path: string[]): Conversion {
  const each = (object: KubeObject, version: string, change: (request: JsonObject) => void): KubeObject => {
    object.apiVersion = `${API}/${version}`;
    for (const request of objects(at(object, ...path)?.['requests'])) change(request);
    return object;
  };
  return {
    toStored: (object) => each(object, 'v1', nest),
    fromStored: (object) => each(object, 'v1beta1', flatten),
  };
}

const slices: Conversion = {
  toStored(object) {
    object.apiVersion = `${API}/v1`;
    for (const device of objects(at(object, 'spec')?.['devices'])) {
      const { basic } = device;
      delete device['basic'];
      if (isJsonObject(basic)) Object.assign(device, basic);
    }
    return object;
  },
  fromStored(object) {
    object.apiVersion = `${API}/v1beta1`;
    for (const device of objects(at(object, 'spec')?.['devices'])) {
      const { name, ...basic } = device;
      for (const field of Object.keys(basic)) delete device[field];
      if (name !== undefined) device['name'] = name;
      device['basic'] = basic;
    }
    return object;
  },
};

/** The conversions of each resource of the group, by served version. */
export const DEVICE_CONVERSIONS = {
  claims: { v1beta1: requests('spec', 'devices') },
  templates: { v1beta1: requests('spec', 'spec', 'devices') },
  slices: { v1beta1: slices },
} as const;
