# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The hot path, compiled: sends of one read, their records and their answers; a follower's look at records; pulls.

Each function does what a function in Python does as well, for what is usual, and says of all else that it does not take
it: see remoting/runs.py, store/log/assembler.py, store/raftlog/covered_records.py, store/reads/reads.py, and the
property tests that hold the two to be equal on every input. Nothing of RaftMQ is imported here: what is needed is
handed in.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        PyObject* (*tp_alloc)(PyTypeObject*, Py_ssize_t)

cdef extern from *:
    """
    /* Since Python 3.14 a tuple keeps its hash, and 0, which is what new memory holds, would be taken for one. */
    static inline void forget_hash(PyObject *made) {
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)made)->ob_hash = -1;
    #endif
        (void)made;
    }
    """
    void forget_hash(PyObject* made) noexcept

include "bytes.pxi"
include "properties.pxi"
include "requests.pxi"
include "sends.pxi"
include "records.pxi"
include "entries.pxi"
include "columns.pxi"
include "pullruns.pxi"
include "pulls.pxi"
