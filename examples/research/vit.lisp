; A vision transformer: an image's squares are its tokens, and one more says what it shows.
(require nn arrays training)
(config size 16  square 4  layers 2  heads 2  width 16  classes 10)
(def squares (* (quot size square) (quot size square)))
(weights (square-w [width (* 3 square square)] {:init (normal 0.1)}) (class-row [width] {:init (normal 0.02)})
  (places [(+ 1 squares) width] {:init (normal 0.02)})
  (per layers (qkv-w [(* 3 width) width]) (out-w [width width]) (up-w [(* 4 width) width]) (up-b [(* 4 width)])
    (down-w [width (* 4 width)]) (down-b [width]) (norm1-w [width] {:init 1}) (norm1-b [width])
    (norm2-w [width] {:init 1}) (norm2-b [width]))
  (norm-w [width] {:init 1}) (norm-b [width]) (head-w [classes width]))

(defn layer [x l texts]
  (let [length (+ 1 squares)
        qkv (matmul-transposed (layer-norm x (norm1-w l) (norm1-b l)) (qkv-w l))
        [q k v] (map (fn [part] (reshape part [texts length heads (quot width heads)]))
                     (split-heads qkv (quot width heads) heads heads))
        x (+ x (matmul-transposed (reshape (attention-to q k v) [(* texts length) width]) (out-w l)))
        h (gelu (linear (layer-norm x (norm2-w l) (norm2-b l)) (up-w l) (up-b l)))]
    (+ x (linear h (down-w l) (down-b l)))))

(entry fit [(images [batch size size 3] f32) (labels [batch] i32)]
  (let [n (dim images 0)
        across (quot size square)
        parts (transpose (reshape images [n across square across square 3]) [0 1 3 2 4 5])
        seen (matmul-transposed (reshape parts [(* n squares) (* 3 square square)]) square-w)
        seen (reshape seen [n squares width])
        x (join [(tensor [b n one 1 c width] (at class-row c)) seen] 1)
        x (+ x (tensor [b n t (+ 1 squares) c width] (at places t c)))
        x (fold (fn [x l] (layer x l n)) (reshape x [(* n (+ 1 squares)) width]) (range layers))
        firsts (reshape (slice (reshape x [n (+ 1 squares) width]) [0 0 0] [n 1 width]) [n width])
        [loss right] (cross-entropy (matmul-transposed (layer-norm firsts norm-w norm-b) head-w) labels classes)]
    {:loss loss :right right}))
(training fit)
