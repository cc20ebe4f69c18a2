; Reading llm.c's checkpoints and tokenizers (see gpt2_explicit.lisp).

(require-dialect arith llvm memref scf)
(require "sizes.lisp")

(link-library :c)
(extern-fn fopen (-> [!llvm.ptr !llvm.ptr] [!llvm.ptr]))
(extern-fn fread (-> [!llvm.ptr i64 i64 !llvm.ptr] [i64]))
(extern-fn fclose (-> [!llvm.ptr] [i32]))
(extern-fn malloc (-> [i64] [!llvm.ptr]))
(extern-fn putchar (-> [i32] [i32]))
(extern-fn exit (-> [i32] []))

; ---- the checkpoint

(llvm.mlir.global {:sym_name "for-reading" :linkage "internal" :constant true :global_type !llvm.array<3 x i8>
                   :value "rb\0"}
  (region))

(defn address [m]
  (llvm.inttoptr {:result !llvm.ptr}
    (arith.index_cast {:result i64} (memref.extract_aligned_pointer_as_index m))))

(defn stop-if [condition message]
  (when condition
    (println message)
    (exit (: 1 i32))))

; Read `count` numbers of `bytes` bytes each (4: F32, 2: BF16) into the first `count` floats of the buffer.
(defn read-floats [(: file !llvm.ptr) (: bytes i64) (: count index) (: buffer memref<?xi8>)] -> []
  (def floats (memref.view {:result memref<?xf32>} buffer (: 0 index) count))
  (def size (arith.index_cast {:result i64} count))
  (if (=i bytes (: 4 i64))
    (do (def got (fread (address floats) bytes size file))
        (stop-if (!=i got size) "the checkpoint is too short"))
    ; BF16 goes to the buffer's second half, and from there, front to back, over all of it.
    (do (def halves (memref.view {:result memref<?xbf16>} buffer (arith.muli count 2) count))
        (def start (llvm.getelementptr {:elem_type i8 :rawConstantIndices array<i32: -2147483648> :result !llvm.ptr}
                     (address buffer) (arith.muli size 2)))
        (def got (fread start bytes size file))
        (stop-if (!=i got size) "the checkpoint is too short")
        (each [i count]
          (memref.store (arith.extf {:result f32} (memref.load halves i)) floats i)))))

; A tensor of rows, as it is.
(defn read-rows [(: file !llvm.ptr) (: bytes i64) (: buffer memref<?xi8>) (: to memref<?x?xf32>)] -> []
  (def columns (memref.dim to (: 1 index)))
  (def floats (memref.view {:result memref<?xf32>} buffer (: 0 index) columns))
  (each [row (memref.dim to (: 0 index))]
    (read-floats file bytes columns buffer)
    (each [column columns]
      (memref.store (memref.load floats column) to row column))))

; Matrices, one for each layer, transposed to (in, out) and cut to BF16.
(defn read-matrices [(: file !llvm.ptr) (: bytes i64) (: buffer memref<?xi8>) (: to memref<?x?x?xbf16>)] -> []
  (def ins (memref.dim to (: 1 index)))
  (def outs (memref.dim to (: 2 index)))
  (def floats (memref.view {:result memref<?x?xf32>} buffer (: 0 index) outs ins))
  (each [layer (memref.dim to (: 0 index))]
    (read-floats file bytes (arith.muli ins outs) buffer)
    (each [i ins]
      (each [o outs]
        (memref.store (arith.truncf {:result bf16} (memref.load floats o i)) to layer i o)))))

; Embeddings, cut to BF16.  The tokens' is the last layer's matrix as well, and both stay as they are.
(defn read-embedding [(: file !llvm.ptr) (: bytes i64) (: buffer memref<?xi8>) (: to memref<?x768xbf16>)] -> []
  (def floats (memref.view {:result memref<?xf32>} buffer (: 0 index) (: width index)))
  (each [row (memref.dim to (: 0 index))]
    (read-floats file bytes (: width index) buffer)
    (each [c (: width index)]
      (memref.store (arith.truncf {:result bf16} (memref.load floats c)) to row c))))

; ---- the tokenizer: a length and that many bytes for every token

(defn byte-at [text i]
  (llvm.load {:result i8}
    (llvm.getelementptr {:elem_type i8 :rawConstantIndices array<i32: -2147483648> :result !llvm.ptr} text i)))

; Where each token's piece starts: its length, then its bytes.
(defn read-pieces [(: path !llvm.ptr) (: pieces memref<50257xi64>) (: header memref<256xi32>)] -> []
  (def file (fopen path (llvm.mlir.addressof {:global_name @for-reading :result !llvm.ptr})))
  (stop-if (null? file) "cannot open the tokenizer")
  (fread (address header) (: 4 i64) (: 256 i64) file)
  (stop-if (!=i (memref.load header 0) (: 20240328 i32)) "the second argument is not a tokenizer of llm.c's")
  (each [token (: vocab index)]
    (def piece (malloc (: 256 i64)))
    (fread piece (: 1 i64) (: 1 i64) file)
    (def length (arith.extui {:result i64} (byte-at piece (: 0 i64))))
    (def bytes (llvm.getelementptr {:elem_type i8 :rawConstantIndices array<i32: 1> :result !llvm.ptr} piece))
    (fread bytes (: 1 i64) length file)
    (memref.store (llvm.ptrtoint {:result i64} piece) pieces token))
  (fclose file))

(defn print-token [(: pieces memref<50257xi64>) (: token i32)] -> []
  (def piece (llvm.inttoptr {:result !llvm.ptr} (memref.load pieces (arith.index_cast {:result index} token))))
  (def length (arith.index_castui {:result index} (byte-at piece (: 0 i64))))
  (each [i length]
    (def place (arith.index_cast {:result i64} (arith.addi i 1)))
    (putchar (arith.extui {:result i32} (byte-at piece place)))))
