/** Tests flags of the controllers: invalid values are refused before anything starts. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { checkControllers, isEnabled } from '../../../../controlplane/controllers/controller-names.ts';
import { controllerTable } from '../../../../controlplane/controllers/controller-table.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { clusterCidrProblem } from '../../../../controlplane/options/controllers.ts';

const UNKNOWN = /^invalid argument .* is not in the list of known controllers$/;

const refusals: readonly (readonly [string, RegExp])[] = [
  ['--controllers=nonsense', UNKNOWN],
  ['--controllers=*,-nonsense', UNKNOWN],
  ['--controllers=service-lb-controller', UNKNOWN],
  ['--cluster-cidr=nonsense', /"nonsense" is not a CIDR such as 10\.244\.0\.0\/16$/],
  ['--cluster-cidr=10.244.0.0', /"10\.244\.0\.0" is not a CIDR/],
  ['--cluster-cidr=10.0.0.0/16,10.1.0.0/16', /must hold one CIDR, or one IPv4 and one IPv6 CIDR$/],
  ['--node-cidr-mask-size-ipv4=33', /must be between 1 and 32$/],
  ['--node-cidr-mask-size-ipv6=0', /must be between 1 and 128$/],
];

describe('flags of the controllers', () => {
  for (const [word, message] of refusals) {
    it(`refuse ${word} with one line`, () => {
      assert.throws(
        () => parseFlags(controlPlaneFlags, [word]),
        (error: Error) => error.name === 'UsageError' && message.test(error.message) && !error.message.includes('\n'),
      );
    });
  }

  for (const word of [
    '--controllers=*',
    '--controllers=-*',
    '--controllers=*,-job,-nodeipam',
    '--controllers=-service-lb-controller,*',
    '--controllers=device-taint-eviction-controller',
  ])
    it(`take ${word}`, () => assert.doesNotThrow(() => parseFlags(controlPlaneFlags, [word])));

  for (const [words, problem] of [
    [[], undefined],
    [['--cluster-cidr=10.0.0.0/16,fd00::/48'], undefined],
    [
      ['--node-cidr-mask-size-ipv4=8'],
      '--node-cidr-mask-size-ipv4 8 is shorter than the prefix of --cluster-cidr 10.244.0.0/16',
    ],
    [
      ['--cluster-cidr=fd00::/16'],
      '--node-cidr-mask-size-ipv6 64 splits --cluster-cidr fd00::/16 into more than 2^16 parts',
    ],
  ] as const)
    it(`compare ranges and sizes of parts: ${words.join(' ') || 'the defaults'}`, () =>
      assert.equal(clusterCidrProblem(parseFlags(controlPlaneFlags, words).values), problem));

  it('refuse a start whose parts do not fit the range', async () => {
    await assert.rejects(startControlPlane({ memory: true, flags: { nodeCidrMaskSizeIpv4: 8 } }), {
      name: 'StartError',
    });
  });

  it('run no controller with -*, except those that are named', () => {
    assert.equal(isEnabled({ name: 'job-controller' }, ['-*']), false);
    assert.equal(isEnabled({ name: 'job-controller' }, ['-*', 'job']), true);
  });

  it('know every controller of the table', () => {
    const parts = {
      rootCaPem: '',
      tokenSigner: { sign: () => Promise.reject(new Error('unused')) } as never,
      certificateSigner: { signerNames: [], sign: () => '' },
    };
    const names = controllerTable(parts).map(({ name }) => name);
    assert.equal(new Set(names).size, names.length);
    assert.equal(checkControllers(names), undefined);
  });
});
