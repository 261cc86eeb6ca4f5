/** Progress and failures of an installation, from the lines that uv 0.13 and pip 23.2 to 26 print. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { diskFull, failureReason } from "../src/installFailure";
import { InstallProgress } from "../src/installProgress";

const states = (expectedMb: number, lines: string[]): (string | undefined)[] => {
  const progress = new InstallProgress(expectedMb);
  return lines.map((line) => {
    const state = progress.read(line);
    return state && `${Math.round(state.percent)} %: ${state.message}`;
  });
};

test("uv: the largest download of several is named, with the megabytes of all", () => {
  const lines = [
    "Using Python 3.11.7 environment at: u",
    "Resolved 63 packages in 5.29s",
    "Downloading tokenizers (3.2MiB)",
    "Downloading numpy (16.1MiB)",
    "Downloaded tokenizers",
    "Downloaded numpy",
    "Prepared 63 packages in 934ms",
    "Installed 63 packages in 138ms",
    "+ anyio==4.16.0",
  ];
  assert.deepEqual(states(37, lines), [
    undefined,
    "0 %: 63 packages are needed",
    "0 %: downloading tokenizers, 0 of 37 MB",
    "0 %: downloading numpy, 0 of 37 MB",
    "9 %: downloading numpy, 3 of 37 MB",
    "55 %: downloading, 20 of 37 MB",
    "100 %: installing 63 packages",
    undefined,
    undefined,
  ]);
});

test("pip: a file that starts ends the one before; descriptions of packages do not count", () => {
  const lines = [
    "Processing /e/server/speclsp-0.1.0-py3-none-manylinux_2_17_x86_64.whl",
    "Collecting numpy>=1.26 (from speclsp@ file:///e/server/speclsp-0.1.0-py3-none-manylinux_2_17_x86_64.whl)",
    "Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl.metadata (62 kB)",
    "Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)",
    "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 16.9/16.9 MB 103.4 MB/s eta 0:00:00",
    "Collecting hf-xet<2.0.0,>=1.6.0 (from huggingface-hub>=1.5)",
    "Using cached https://h/packages/hf_xet-1.8.0-cp38-abi3-manylinux2014_x86_64.whl (4.3 MB)",
    "Installing collected packages: numpy, speclsp",
    "Successfully installed numpy-2.4.6",
  ];
  assert.deepEqual(states(37, lines), [
    undefined,
    "0 %: looking up packages",
    undefined,
    "0 %: downloading numpy, 0 of 37 MB",
    undefined,
    undefined,
    "46 %: downloading hf-xet, 17 of 37 MB",
    "100 %: installing packages",
    undefined,
  ]);
});

test("a download above the expected size raises the total, and a source package is compiled", () => {
  const lines = [
    "Downloading nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl (2.0 GB)",
    "Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (1.5 GB)",
    "Building wheel for speclsp (pyproject.toml): started",
    "Building speclsp @ file:///e/server/speclsp-0.1.0.tar.gz",
  ];
  assert.deepEqual(states(3000, lines), [
    "0 %: downloading nvidia-cublas, 0 of 3000 MB",
    "57 %: downloading torch, 2000 of 3500 MB",
    "57 %: compiling speclsp",
    "57 %: compiling speclsp",
  ]);
});

test("a failure is one sentence with the way out", () => {
  const full = /^the disk is full, and speclsp needs 185 MB\. Free some space/;
  const offline = /^the package index cannot be reached\. Check the network and the proxy/;
  const untrusted = /^the package index has a certificate that is not trusted here\. Set SSL_CERT_FILE/;
  assert.match(diskFull(185), full);
  for (const [reason, ...lines] of [
    [full, "cause: failed to write to file `numpy/a.so`: No space left on device (os error 28)"],
    [full, "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
    [full, "error: failed to write: There is not enough space on the disk. (os error 112)"],
    [offline, "error: Request failed after 3 retries in 5.8s", "cause: client error (Connect)", "cause: dns error"],
    [offline, "cause: tcp connect error", "cause: Connection refused (os error 111)"],
    [
      offline,
      "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('Failed to establish a new " +
        "connection: [Errno -3] Temporary failure in name resolution')': /simple/numpy/",
      "ERROR: No matching distribution found for numpy",
    ],
    [untrusted, "cause: client error (Connect)", "cause: invalid peer certificate: UnknownIssuer"],
    [untrusted, "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))"],
    [/^a file could not be written\. Close other programs/, "error: Access is denied. (os error 5)"],
    [/^uv failed\. The log has its messages\.$/, "error: No solution found when resolving dependencies"],
  ] as [RegExp, ...string[]][]) {
    assert.match(failureReason(lines, "uv", 185), reason);
  }
});
